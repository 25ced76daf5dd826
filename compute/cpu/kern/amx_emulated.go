//go:build amxemu && amd64 && !purego

package kern

import "os"

// Built with the tag amxemu, tests of other packages consider class AMX available when
// tools/amxemu runs them:
//
//	go -C tools build -o ../bin/ ./amxemu
//	go test -tags amxemu -exec "$PWD/bin/amxemu" ./compute/cpu
func init() {
	if os.Getenv("AMXEMU") == "1" {
		noAMX = nil
	}
}
