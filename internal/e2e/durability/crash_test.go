package durability

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"
	"unsafe"

	_ "modernc.org/sqlite" // the driver that reads the file

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit"
)

var soak = flag.Bool("soak", false, "run TestSoak, which cuts the service off 400 times")

// moment is when the service is cut off.
type moment string

const (
	whileServing  moment = "serving"
	whileStarting moment = "starting" // or recovering, or making the database
	whileStopping moment = "stopping" // after SIGTERM
	whileCopying  moment = "copying"  // of the log of SQLite into its file
	whileTwoDie   moment = "two die"  // the database is killed too, before or after
)

// course is one database whose service is cut off again and again under load, and the ledger of what
// its clients were told. The ledger is kept, written and compared by a process of its own.
type course struct {
	t       *testing.T
	db      string // what --db takes
	ledger  string // the path of the ledger, on another file system than the database
	command func() *exec.Cmd
	cut     func(p *testkit.Server) // ends the service; after it, it can be started again
	server  *pgtest.Server          // of the database, for whileTwoDie

	total totals
}

// totals sums up what the ledger found.
type totals struct {
	Cuts                            int
	At                              map[moment]int
	Intents, Acks, Refused, Unknown int
	Whole, Absent                   int
	Lost                            int
	Lies                            []string
}

func (t *totals) add(o totals) {
	t.Cuts, t.Intents, t.Acks, t.Refused, t.Unknown = t.Cuts+o.Cuts, t.Intents+o.Intents, t.Acks+o.Acks, t.Refused+o.Refused, t.Unknown+o.Unknown
	t.Whole, t.Absent, t.Lost, t.Lies = t.Whole+o.Whole, t.Absent+o.Absent, t.Lost+o.Lost, append(t.Lies, o.Lies...)
	if t.At == nil {
		t.At = map[moment]int{}
	}
	for at, n := range o.At {
		t.At[at] += n
	}
}

func (t totals) String() string {
	return fmt.Sprintf("%d cuts %v: %d intents, %d acks, %d refused, %d unknown of which %d whole and %d absent, %d lost, %d lies",
		t.Cuts, t.At, t.Intents, t.Acks, t.Refused, t.Unknown, t.Whole, t.Absent, t.Lost, len(t.Lies))
}

// newCourse is a course of the product on a database.
func newCourse(t *testing.T, db, ledger string) *course {
	return &course{
		t: t, db: db, ledger: ledger,
		command: func() *exec.Cmd {
			cmd := exec.Command(testkit.Binary, "serve", "--db", db, "--listen", "127.0.0.1:0", "--ops-listen", "off", "--access-log", "off")
			cmd.Env = append(os.Environ(), "PLANTSTORE_TOKEN="+testkit.FixedToken)
			return cmd
		},
		cut: (*testkit.Server).Kill,
	}
}

// onFile is a course whose cuts are kill -9, on SQLite.
func onFile(t *testing.T) *course {
	return newCourse(t, filepath.Join(t.TempDir(), "plants.db"), filepath.Join(elsewhere(t), "ledger"))
}

// onPostgres is the same on PostgreSQL.
func onPostgres(t *testing.T, server *pgtest.Server) *course {
	c := newCourse(t, server.Database(t), filepath.Join(elsewhere(t), "ledger"))
	c.server = server
	return c
}

// onImage is a course on SQLite whose cuts are power cuts: what was not synced is gone.
func onImage(t *testing.T) *course {
	disk := newImage(t)
	c := newCourse(t, filepath.Join(disk.folder, "plants.db"), filepath.Join(t.TempDir(), "ledger"))
	c.cut = func(p *testkit.Server) {
		p.Freeze()
		disk.cutPower()
		p.Kill()
		disk.unmount()
		disk.mount()
	}
	return c
}

// elsewhere is a folder on another file system than temporary folders are, where there is one.
func elsewhere(t *testing.T) string {
	folder, err := os.MkdirTemp("/dev/shm", "plantstore-ledger-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// run cuts the service off at the moments, and after each starts it again and verifies the ledger. It
// returns when the ledger has found a lie.
func (c *course) run(moments ...moment) {
	c.t.Helper()
	var p *testkit.Server
	for _, at := range moments {
		if at == whileStarting {
			if p != nil {
				p.Kill()
			}
			p = testkit.Launch(c.t, c.command())
			time.Sleep(rand.N(40 * time.Millisecond))
			c.cut(p)
		} else {
			if p == nil {
				p = c.start()
			}
			c.load(p, at)
		}
		p = c.start()
		found := c.verify(p.URL)
		found.Cuts, found.At = 1, map[moment]int{at: 1}
		c.total.add(found)
		if len(found.Lies) > 0 {
			break
		}
	}
	p.Kill()
}

func (c *course) start() *testkit.Server {
	c.t.Helper()
	p := testkit.Launch(c.t, c.command())
	p.WaitUntilServing()
	return p
}

// load lets clients create plants and cuts the service off.
func (c *course) load(p *testkit.Server, at moment) {
	c.t.Helper()
	load := c.tool("drive", "--url", p.URL)
	var errs bytes.Buffer
	load.Stderr = &errs
	if err := load.Start(); err != nil {
		c.t.Fatal(err)
	}
	ended := sync.OnceValue(load.Wait)
	c.t.Cleanup(func() {
		load.Process.Kill()
		ended()
	})
	c.awaitLedger(20_000 + rand.Int64N(400_000))
	switch at {
	case whileStopping:
		p.Cmd.Process.Signal(syscall.SIGTERM)
		time.Sleep(rand.N(10 * time.Millisecond))
	case whileCopying:
		c.awaitCopying()
	case whileTwoDie:
		both := rand.IntN(2) == 0
		testkit.Must(c.t, c.server.Kill9)()
		if both {
			p.Kill()
		}
		testkit.Must(c.t, c.server.Start)()
		if !both {
			c.awaitLedger(20_000) // the service goes on
		}
	}
	c.cut(p)
	if err := ended(); err != nil {
		c.t.Fatalf("the ledger: %v\n%s", err, errs.String())
	}
}

// awaitLedger waits until the ledger has grown by so many bytes.
func (c *course) awaitLedger(more int64) {
	c.t.Helper()
	size := func() int64 {
		info, err := os.Stat(c.ledger)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	before, deadline := size(), time.Now().Add(30*time.Second)
	for size() < before+more {
		if time.Now().After(deadline) {
			c.t.Fatalf("the ledger has grown by %d bytes in 30 s, want %d", size()-before, more)
		}
		time.Sleep(time.Millisecond)
	}
}

// awaitCopying waits until the service writes to the file of the database itself: it does so only when
// it copies the log into it.
func (c *course) awaitCopying() {
	c.t.Helper()
	changed := func() time.Time {
		info, err := os.Stat(c.db)
		if err != nil {
			c.t.Fatal(err)
		}
		return info.ModTime()
	}
	before, deadline := changed(), time.Now().Add(time.Minute)
	for changed().Equal(before) {
		if time.Now().After(deadline) {
			c.t.Fatal("the log was not copied into the file in a minute")
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// verify has the ledger compared with what the service shows, and the file examined.
func (c *course) verify(url string) (found totals) {
	c.t.Helper()
	cmd := c.tool("verify", "--url", url)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if json.Unmarshal(out, &found) != nil {
		c.t.Fatalf("the ledger: %v\n%s%s", err, out, errs.String())
	}
	if c.server == nil {
		if err := integrity(c.db); err != nil {
			found.Lies = append(found.Lies, err.Error())
		}
	}
	return found
}

func integrity(path string) error {
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_pragma=query_only(1)")
	if err != nil {
		return err
	}
	defer db.Close()
	var words string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&words); err != nil {
		return fmt.Errorf("integrity_check: %w", err)
	}
	if words != "ok" {
		return fmt.Errorf("integrity_check: %s", words)
	}
	return nil
}

var ledgerBinary = sync.OnceValues(func() (string, error) {
	return testkit.BuildCommand("ledger", "plantstore/internal/testkit/ledger")
})

func (c *course) tool(command string, args ...string) *exec.Cmd {
	c.t.Helper()
	path, err := ledgerBinary()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{command, "--ledger", c.ledger}, args...)...)
	cmd.Env = append(os.Environ(), "PLANTSTORE_TOKEN="+testkit.FixedToken)
	return cmd
}

func (c *course) wantTruth() {
	c.t.Helper()
	c.t.Log(c.total)
	for _, lie := range c.total.Lies[:min(10, len(c.total.Lies))] {
		c.t.Error(lie)
	}
	if c.total.Acks < 30 || c.total.Refused < 3 {
		c.t.Error("too few plants to show anything")
	}
}

func TestKill(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		c := onFile(t)
		c.run(whileStarting, whileServing, whileStopping, whileServing, whileStarting, whileServing)
		c.wantTruth()
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		c := onPostgres(t, pgtest.Start(t, nil))
		c.run(whileStarting, whileServing, whileTwoDie, whileServing, whileStopping, whileServing)
		c.wantTruth()
	})
}

func TestPowerCut(t *testing.T) {
	t.Parallel()
	c := onImage(t)
	c.run(whileStarting, whileServing, whileStopping, whileServing)
	c.wantTruth()
}

// TestSoak is for make soak.
func TestSoak(t *testing.T) {
	if !*soak {
		t.Skip("make soak runs it")
	}
	const each = 20 // cuts of one database
	moments := func(special moment) []moment {
		all := slices.Repeat([]moment{whileStarting, whileServing, whileServing, whileStopping, whileServing}, each/5)
		all[each/2-1], all[each-1] = special, special
		return all
	}
	campaigns := []struct {
		name    string
		cuts    int
		new     func(t *testing.T) *course
		moments []moment
		total   totals
	}{
		{name: "kill -9, SQLite", cuts: 200, new: onFile, moments: moments(whileCopying)},
		{name: "power cut, SQLite", cuts: 100, new: onImage, moments: moments(whileCopying)},
		{name: "kill -9, PostgreSQL", cuts: 100, new: func(t *testing.T) *course { return onPostgres(t, pgtest.Start(t, nil)) }, moments: moments(whileTwoDie)},
	}
	start := time.Now()
	t.Run("campaigns", func(t *testing.T) {
		for i := range campaigns {
			k := &campaigns[i]
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				for n := 0; n < k.cuts/each && !t.Failed(); n++ {
					t.Run(fmt.Sprint(n), func(t *testing.T) {
						c := k.new(t)
						c.run(k.moments...)
						c.wantTruth()
						k.total.add(c.total)
					})
					fmt.Printf("%5.0fs  %-20s %d of %d cuts, %d acks, %d lost\n", time.Since(start).Seconds(), k.name, k.total.Cuts, k.cuts, k.total.Acks, k.total.Lost)
				}
			})
		}
	})
	fmt.Println()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "cut\tcuts\tintents\tacks\trefused\tunknown\tfound whole\tabsent\tlost\tlies\t")
	for _, k := range campaigns {
		r := k.total
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", k.name, r.Cuts, r.Intents, r.Acks, r.Refused, r.Unknown, r.Whole, r.Absent, r.Lost, len(r.Lies))
	}
	w.Flush()
	fmt.Println()
	for _, k := range campaigns {
		fmt.Printf("%s: %v\n", k.name, k.total.At)
		if k.total.Cuts < k.cuts {
			t.Errorf("%s: %d cuts, want %d (a power cut takes root on Linux)", k.name, k.total.Cuts, k.cuts)
		}
	}
	fmt.Printf("in %v\n", time.Since(start).Round(time.Second))
}

// image is a file system of its own, in a file, whose power can be cut.
type image struct {
	t            *testing.T
	file, folder string
}

func newImage(t *testing.T) *image {
	t.Helper()
	i := &image{t: t, file: filepath.Join(t.TempDir(), "image"), folder: t.TempDir()}
	if err := i.make(); err != nil {
		testkit.Unavailable(t, "the power can't be cut here: %v", err)
	}
	return i
}

func (i *image) make() error {
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		return errors.New("it takes root on Linux")
	}
	if err := os.WriteFile(i.file, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(i.file, 1<<30); err != nil {
		return err
	}
	if err := command("mkfs.ext4", "-q", i.file); err != nil {
		return err
	}
	guard := exec.Command("sh", "-c", unmountLater, "sh", i.folder)
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := guard.StdinPipe()
	if err != nil {
		return err
	}
	if err := guard.Start(); err != nil {
		return err
	}
	i.t.Cleanup(func() {
		command("umount", i.folder)
		pipe.Close()
		guard.Wait()
	})
	return i.attach()
}

// unmountLater waits for the end of its input, which comes however the test ends. Where the folder is
// still mounted it kills who uses it and unmounts it.
const unmountLater = `
read -r _
grep -q " $1 " /proc/mounts || exit 0
for process in /proc/[0-9]*; do
	ls -l "$process/fd" 2>/dev/null | grep -q " $1/" && kill -9 "${process#/proc/}"
done
umount -l "$1"`

func (i *image) attach() error { return command("mount", "-o", "loop", i.file, i.folder) }

func (i *image) mount() { i.t.Helper(); testkit.Must(i.t, i.attach)() }

func (i *image) unmount() {
	i.t.Helper()
	testkit.Must(i.t, func() error { return command("umount", i.folder) })()
}

// cutPower ends the file system at once: nothing reaches the disk from now on, not even the journal.
func (i *image) cutPower() {
	i.t.Helper()
	const shutdown, noLogFlush = 0x8004587D, 2 // EXT4_IOC_SHUTDOWN
	folder, err := os.Open(i.folder)
	if err != nil {
		i.t.Fatal(err)
	}
	defer folder.Close()
	how := uint32(noLogFlush)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, folder.Fd(), shutdown, uintptr(unsafe.Pointer(&how))); errno != 0 {
		i.t.Fatalf("cut the power: %v", errno)
	}
}

// command runs a program of the system, which may be where only root looks.
func command(name string, args ...string) error {
	if path, err := exec.LookPath("/usr/sbin/" + name); err == nil {
		name = path
	}
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}
