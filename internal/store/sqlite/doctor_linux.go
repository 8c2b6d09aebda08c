package sqlite

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"plantstore/internal/store"
)

// networks are file systems whose locks or syncs can't be trusted, by their type.
var networks = map[int64]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "CIFS", unix.SMB2_SUPER_MAGIC: "SMB",
	unix.CEPH_SUPER_MAGIC: "Ceph", unix.AFS_SUPER_MAGIC: "AFS", unix.V9FS_MAGIC: "9P", unix.CODA_SUPER_MAGIC: "Coda",
}

// diagnoseDisk checks the file system of a folder.
func diagnoseDisk(found *store.Findings, folder string) {
	var disk unix.Statfs_t
	if err := unix.Statfs(folder, &disk); err != nil {
		found.Add("file system", "problem", "%s: %v; check --db", folder, err)
		return
	}
	if InMemory(folder) {
		found.Add("file system", "problem", "%s is in memory: a reboot loses every plant; %s", folder, moveAway)
	} else if name := networks[int64(uint32(disk.Type))]; name != "" {
		found.Add("file system", "problem", "%s is on a network (%s): plants can be lost; %s", folder, name, moveAway)
	} else if disk.Type == unix.OVERLAYFS_SUPER_MAGIC {
		found.Add("file system", "warning", "%s is a layer of a container and removed with it; use a volume", folder)
	} else if disk.Type == unix.FUSE_SUPER_MAGIC {
		found.Add("file system", "warning", "%s is on FUSE; check that it is a local disk and honours fsync", folder)
	}
	if disk.Flags&unix.ST_RDONLY != 0 {
		found.Add("file system", "problem", "%s is mounted for reading only; mount it for writing", folder)
	}
	found.Passed("file system", "%s is on a local disk", folder)
	switch free := int64(disk.Bavail) * disk.Bsize; {
	case free < minSpace:
		found.Add("space", "problem", "the disk is full, so serve can only read; free at least %d MiB", lowSpace>>20)
	case free < lowSpace:
		found.Add("space", "warning", "only %d MiB are free; free at least %d MiB", free>>20, lowSpace>>20)
	default:
		found.Passed("space", "%d MiB are free", free>>20)
	}
}

// diagnoseAccess checks that this user, and probably that of the service, can use the folder and the files of a
// database. It reports whether the files can be read.
func diagnoseAccess(found *store.Findings, target string) (readable bool) {
	const how = "run plantstore as the user of the service"
	var parent, file unix.Stat_t
	folder := filepath.Dir(target)
	if unix.Stat(folder, &parent) != nil {
		return false
	}
	if unix.Access(folder, unix.R_OK|unix.W_OK|unix.X_OK) != nil {
		found.Add("permissions", "problem", "this user can't write to %s, which belongs to user %d; %s", folder, parent.Uid,
			how)
	}
	readable = true
	for _, suffix := range []string{"", walSuffix, shmSuffix} {
		name := target + suffix
		if unix.Stat(name, &file) != nil {
			continue
		}
		readable = readable && unix.Access(name, unix.R_OK) == nil
		me := uint32(os.Getuid())
		switch unusable := unix.Access(name, unix.R_OK|unix.W_OK) != nil; {
		case unusable && file.Uid == me:
			found.Add("permissions", "problem", "this user can't read and write %s; run chmod 600 %[1]s", name)
		case unusable:
			found.Add("permissions", "problem", "this user can't read and write %s, which belongs to user %d; %s, and if "+
				"that is this one, run as root chown %d %[1]s", name, file.Uid, how, me)
		case me == 0 && file.Uid != parent.Uid && parent.Mode&unix.S_ISVTX == 0:
			found.Add("permissions", "warning", "%s belongs to user %d and its folder to user %d; if serve runs as user "+
				"%[3]d, run chown %[3]d:%d %[1]s", name, file.Uid, parent.Uid, parent.Gid)
		}
	}
	return readable
}
