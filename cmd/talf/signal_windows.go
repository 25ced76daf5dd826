package main

import "os"

// interruptSignals ask for an orderly stop.
var interruptSignals = []os.Signal{os.Interrupt}
