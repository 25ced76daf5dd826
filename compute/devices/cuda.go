package devices

import (
	"errors"
	"fmt"
	"os"

	"talf/compute"
	"talf/compute/cuda"
)

func openCUDA(ordinal int, c Config) (compute.Device, error) {
	cfg := cuda.Default()
	cfg.Device, cfg.BF16, cfg.BLAS, cfg.Planes, cfg.Log = ordinal, c.TrainBF16, c.TrainBLAS, c.ActPlanes, c.Log
	return cuda.New(cfg)
}

func examineCUDA() Report {
	e := cuda.Examine()
	r := Report{Reason: e.Reason, Driver: e.Driver, Missing: e.Missing}
	if _, err := os.Stat("/dev/nvidia0"); err == nil && r.Reason != "" {
		r.Reason += "; the NVIDIA GPU of this machine stays idle"
	}
	for _, d := range e.Devices {
		r.Devices = append(r.Devices, Info{
			Name: d.Name, Capability: fmt.Sprintf("%d.%d", d.Major, d.Minor), Memory: d.Memory, Reason: d.Reason,
		})
	}
	return r
}

func tryCUDA(ordinal int, i *Info) error {
	dev, err := openCUDA(ordinal, Config{})
	if err != nil {
		return err
	}
	if i.Free, err = dev.Abilities().Plan.Free(); err == nil {
		i.CopyRate, err = cuda.CopyRate(dev)
	}
	return errors.Join(err, dev.Close())
}
