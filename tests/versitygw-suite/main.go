// versitygw's integration suite against one endpoint: every case of its full flow and of its versions, in one process, so
// that each has buckets of its own. Prints a JSON line for each case.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/versity/versitygw/tests/integration"
)

// Cases of versitygw's own identity service, of its website endpoint and of its file system.
var others = regexp.MustCompile(`^(IAM|S3IAM|GatewayIAM|WebsiteHosting|Posix|Scoutfs)`)

type outcome struct {
	Name  string `json:"name"`
	Error string `json:"error"`
}

func run(test func(*integration.S3Conf) error, conf *integration.S3Conf) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if reason := recover(); reason != nil {
				done <- fmt.Errorf("panic: %v", reason)
			}
		}()
		done <- test(conf)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		return fmt.Errorf("no end after a minute")
	}
}

func main() {
	conf := integration.NewS3Conf(
		integration.WithEndpoint(os.Args[1]),
		integration.WithAccess(os.Getenv("AWS_ACCESS_KEY_ID")),
		integration.WithSecret(os.Getenv("AWS_SECRET_ACCESS_KEY")),
		integration.WithRegion(os.Getenv("AWS_REGION")),
		integration.WithVersioningEnabled(),
	)
	tests := integration.GetIntTests()
	names := []string{}
	for name := range tests {
		if !others.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	// The suite prints as it goes; what counts goes to a file of its own.
	out, err := os.Create(os.Args[2])
	if err != nil {
		panic(err)
	}
	defer out.Close()
	lines := json.NewEncoder(out)
	for _, name := range names {
		said := ""
		if err := run(tests[name], conf); err != nil {
			said = err.Error()
		}
		if err := lines.Encode(outcome{name, said}); err != nil {
			panic(err)
		}
	}
}
