package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// Config is one run.
type Config struct {
	Server     string
	DSN        string
	Prefix     string // of the tables
	Events     int
	Processes  int
	Producers  int
	Aggregates int
	Control    string
}

// Result is what one run counted.
type Result struct {
	Config
	Committed int
	Lost      int
	Twice     int
	Disorder  int
	Phantom   int // delivered, though never committed
}

// String is the line for scripts.
func (r Result) String() string {
	control := ""
	if r.Control != "" {
		control = " control=" + r.Control
	}
	return fmt.Sprintf("stress server=%s%s events=%d lost=%d twice=%d disorder=%d",
		r.Server, control, r.Committed, r.Lost, r.Twice, r.Disorder)
}

func (r Result) verdict() error {
	switch {
	case r.Committed < r.Events:
		return fmt.Errorf("%d events were committed, not %d", r.Committed, r.Events)
	case r.Control == "" && r.Lost+r.Twice+r.Disorder+r.Phantom > 0:
		return fmt.Errorf("the promise is broken: %s phantom=%d", r, r.Phantom)
	case r.Control != "" && r.Lost == 0:
		return errors.New("the harness is broken: the control " + r.Control + " lost nothing")
	}
	return nil
}

// producerVar holds the Config of a producer process.
const producerVar = "OUTBOX_STRESS_PRODUCER"

func isProducer() bool { return os.Getenv(producerVar) != "" }

func configFromEnvironment() (Config, error) {
	var config Config
	err := json.Unmarshal([]byte(os.Getenv(producerVar)), &config)
	return config, err
}
