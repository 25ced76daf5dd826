package devices

// A Report is what one kind of device offers on this machine.
type Report struct {
	Reason  string   `json:"reason,omitempty"`  // why there is none to use
	API     string   `json:"-"`                 // what the driver speaks, such as CUDA
	Driver  string   `json:"driver,omitempty"`  // the version of it
	Missing []string `json:"missing,omitempty"` // entry points that it lacks
	Devices []Info   `json:"devices"`
}

// Info describes a device.
type Info struct {
	Device     Name   `json:"device"` // what opens it
	Name       string `json:"name"`
	Capability string `json:"compute_capability"`
	Memory     int64  `json:"memory_bytes"`
	Free       int64  `json:"free_bytes,omitempty"` // of memory
	// CopyRate is the bytes that a copy within its memory reads and writes a second.
	CopyRate float64 `json:"copy_bytes_per_second,omitempty"`
	Reason   string  `json:"reason,omitempty"` // why it cannot be used
}

// Examine reports on the devices beside the CPU, one report for each kind. It opens
// and measures each device that can be used.
func Examine() (all []Report) {
	for _, k := range kinds() {
		r := k.report()
		for i := range r.Devices {
			d := &r.Devices[i]
			if d.Reason != "" {
				continue
			}
			if err := k.try(i, d); err != nil {
				d.Reason = err.Error()
			}
		}
		all = append(all, r)
	}
	return all
}

// report is what is known without opening a device.
func (k *kind) report() Report {
	r := k.examine()
	r.API = k.api
	for i := range r.Devices {
		r.Devices[i].Device = k.device(i)
	}
	if r.Devices == nil {
		r.Devices = []Info{}
	}
	return r
}
