package costtest

// The clocks, for tests.
var (
	CPU        = cpu
	ThreadTime = threadTime
)
