package costtest

// The clock of a thread, the work of a yard, and after which time nobody waits, for tests.
var (
	ThreadTime = threadTime
	Work       = work
)

// Tries is how often an input is read that costs too much, and Hang how long nobody waits for one.
const (
	Tries = tries
	Hang  = hang
)
