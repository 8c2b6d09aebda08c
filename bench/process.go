package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startTime = 30 * time.Second
	stopTime  = 20 * time.Second
)

// process is a server under test. The kernel kills it if the harness dies.
type process struct {
	cmd     *exec.Cmd
	address string // host and port
	output  *output
	ended   chan struct{}
}

// output keeps what a process prints, for error messages.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// tail returns the last lines of the output.
func (o *output) tail() string {
	lines := strings.Split(strings.TrimSpace(o.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}

var serves = regexp.MustCompile(`serves http://(127\.0\.0\.1:\d+)`)

// start runs a server and waits until it prints its address.
func start(ctx context.Context, as *syscall.Credential, name string, args ...string) (*process, error) {
	p, err := launch(as, name, args...)
	if err != nil {
		return nil, err
	}
	err = p.await(ctx, func() bool {
		if m := serves.FindStringSubmatch(p.output.String()); m != nil {
			p.address = m[1]
		}
		return p.address != ""
	})
	if err != nil {
		p.stop(syscall.SIGKILL)
		return nil, err
	}
	return p, nil
}

func launch(as *syscall.Credential, name string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(name, args...), output: &output{}, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: as}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// await polls until ready, the end of the process, or startTime.
func (p *process) await(ctx context.Context, ready func() bool) error {
	deadline := time.After(startTime)
	for !ready() {
		select {
		case <-p.ended:
			return fmt.Errorf("it exited at once: %s", p.output.tail())
		case <-deadline:
			return fmt.Errorf("it was not ready within %v: %s", startTime, p.output.tail())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop sends the signal and kills the whole process group if that takes too long.
func (p *process) stop(signal syscall.Signal) error {
	p.cmd.Process.Signal(signal)
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopTime):
	}
	syscall.Kill(-p.pid(), syscall.SIGKILL)
	<-p.ended
	return fmt.Errorf("it did not stop within %v: %s", stopTime, p.output.tail())
}

// fetch sends a GET request and returns the header and the body of the response, which must be 200.
func (p *process) fetch(ctx context.Context, token, path string, prefer ...string) (http.Header, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, "GET", "http://"+p.address+path, nil)
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header["Prefer"] = prefer
	response, err := (&http.Client{Timeout: time.Minute}).Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, nil, fault(fmt.Sprintf("GET %s returned %d: %v", path, response.StatusCode, err))
	}
	return response.Header, body, nil
}

// command runs a program and returns its standard output.
func command(ctx context.Context, as *syscall.Credential, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: as}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		text, _ := io.ReadAll(&stderr)
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(text))
	}
	return out, nil
}
