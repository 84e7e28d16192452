// Command peer is somebody else's Oblivious HTTP, for tests: a gateway and a
// client that share no code with ours, on Go's standard library alone.
//
//	peer serve           listens on loopback; says where in a line of JSON
//	peer ask -keys URL -gateway URL [flags] <content
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 1 && arguments[0] == "serve":
		return serve()
	case len(arguments) > 0 && arguments[0] == "ask":
		return ask(arguments[1:])
	default:
		return fmt.Errorf("usage: peer serve | peer ask -keys URL -gateway URL [flags]")
	}
}
