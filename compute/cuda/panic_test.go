//go:build gpu && linux && cgo

package cuda

import (
	"strings"
	"testing"
)

// A panic on the owner's goroutine fails the device: whoever waits gets it as an error, and so does
// everybody who comes later. The process goes on.
func TestAPanicOfTheOwnerIsTheDevicesFailure(t *testing.T) {
	for name, plant := range map[string]func(d *device) error{
		"of a call":       func(d *device) error { return d.do(func() error { panic("planted") }) },
		"of queued work":  func(d *device) error { d.send(command{f: func() { panic("planted") }}); return d.do(d.failure) },
		"of the start":    func(*device) error { return caught(func() error { panic("planted") }) },
		"with a nil func": func(d *device) error { return d.do(nil) },
	} {
		d := &device{work: make(chan command, 4), done: make(chan struct{})}
		go d.serve()
		err := plant(d)
		if err == nil || !strings.Contains(err.Error(), "panic in the device's work: ") || !strings.Contains(err.Error(), "goroutine ") {
			t.Errorf("%s: %v, want the panic with its stack", name, err)
		}
		if failed := d.failure(); (failed == nil) != (name == "of the start") {
			t.Errorf("%s: the device's failure is %v", name, failed)
		}
		if err := d.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
}
