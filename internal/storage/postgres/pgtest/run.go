package pgtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The variables by which StartForRun tells test processes where its servers are: port:directory, and for a cluster
// those of its nodes, separated by commas.
const (
	serverVariable  = "PLANTSTORE_TEST_SERVER"
	clusterVariable = "PLANTSTORE_TEST_CLUSTER"
)

// StartForRun starts the servers that the test processes of one run share: a PostgreSQL server and, if citus is set, a
// cluster of Citus. env has the variables by which Shared and SharedCluster of these processes find them, without those
// of what is not installed. The servers end with stop, and with this process however it ends.
func StartForRun(citus bool) (env []string, stop func() error, err error) {
	var started []*Server
	stop = func() error { return removeAll(started) }
	if bin := findBinaries(); bin != "" {
		s, err := startShared(bin)
		if err != nil {
			return nil, nil, fmt.Errorf("start PostgreSQL: %w", err)
		}
		shared.started.Store(s) // the nodes of the cluster copy its files
		started = append(started, s)
		env = append(env, serverVariable+"="+addresses(started))
	}
	if bin := findCitus(); citus && bin != "" {
		c, err := startCluster(bin, sharedFolder(), sharedWorkers, sharedSettings)
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("start Citus: %w", err), stop())
		}
		started = append(started, c.Nodes()...)
		env = append(env, clusterVariable+"="+addresses(c.Nodes()))
	}
	return env, stop, nil
}

// sharedSettings are those of servers that several packages use at the same time.
var sharedSettings = map[string]string{"max_connections": "1000", "max_wal_size": "128MB"}

func addresses(servers []*Server) string {
	var all []string
	for _, s := range servers {
		all = append(all, fmt.Sprintf("%d:%s", s.Port, s.dir))
	}
	return strings.Join(all, ",")
}

// running returns the servers of the run that a variable names, and none if it is not set.
func running(variable, bin string) (servers []*Server, err error) {
	for address := range strings.SplitSeq(os.Getenv(variable), ",") {
		if address == "" {
			continue
		}
		text, dir, _ := strings.Cut(address, ":")
		port, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", variable, address, err)
		}
		servers = append(servers, &Server{Port: port, dir: dir, bin: bin, shared: true})
	}
	return servers, nil
}

// removeAll removes the servers that are not nil and that this process has started.
func removeAll(servers []*Server) (err error) {
	for _, s := range slices.Backward(servers) {
		if s != nil && s.process != nil {
			err = errors.Join(err, s.remove())
		}
	}
	return err
}

// sharedFolder returns the folder for the directories of shared servers. It is in memory if possible: the product
// refuses servers without fsync, and there fsync costs nothing. Directories whose process was killed are removed.
func sharedFolder() string {
	folder := memoryFolder()
	if folder == "" {
		return os.TempDir()
	}
	left, _ := filepath.Glob(filepath.Join(folder, "pgtest-*-*"))
	for _, dir := range left {
		pid, err := strconv.Atoi(strings.Split(filepath.Base(dir), "-")[1])
		if err == nil && !alive(pid) {
			os.RemoveAll(dir)
		}
	}
	return folder
}
