package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Config is one run.
type Config struct {
	Server     string
	DSN        string
	Prefix     string // of the tables
	Face       string // empty: gormtx
	Isolation  string // of every session; empty: the server's default
	Events     int
	Processes  int
	Producers  int
	Aggregates int
	Pause      time.Duration // inside transactions, at most; rarely twenty times as long
	Open       time.Duration // how long one producer keeps its transaction open, once
	Control    string
	Handled    int // one aggregate in so many has a handler; the others are read
}

// hasHandler reports whether the events of an aggregate have a handler.
func (c Config) hasHandler(aggregate int) bool { return aggregate%max(c.Handled, 1) == 0 }

// Result is what one run counted.
type Result struct {
	Config
	Committed int
	Lost      int
	Twice     int
	Disorder  int
	Phantom   int // delivered, though never committed
	Late      int // found behind the cursor by an audit
	Beside    int // stamped while the open producer was open
}

// String is the line for scripts.
func (r Result) String() string {
	var optional strings.Builder
	if r.Face != "" {
		fmt.Fprintf(&optional, " face=%s", r.Face)
	}
	if r.Isolation != "" {
		fmt.Fprintf(&optional, " isolation=%s", strings.ReplaceAll(r.Isolation, " ", "-"))
	}
	if r.Control != "" {
		fmt.Fprintf(&optional, " control=%s", r.Control)
	}
	if r.Beside > 0 {
		fmt.Fprintf(&optional, " open=%s beside=%d", r.Open, r.Beside)
	}
	return fmt.Sprintf("stress server=%s%s events=%d lost=%d twice=%d disorder=%d",
		r.Server, optional.String(), r.Committed, r.Lost, r.Twice, r.Disorder)
}

func (r Result) verdict() error {
	switch {
	case r.Committed < r.Events:
		return fmt.Errorf("%d events were committed, not %d", r.Committed, r.Events)
	case r.Control == "" && r.Lost+r.Twice+r.Disorder+r.Phantom+r.Late > 0:
		return fmt.Errorf("the promise is broken: %s phantom=%d late=%d", r, r.Phantom, r.Late)
	case r.Open > 0 && r.Beside == 0:
		return errors.New("the harness is broken: nothing was published beside the open producer")
	case r.Control == twoWindows && r.Disorder == 0:
		return errors.New("the harness is broken: the control " + r.Control + " kept the order")
	case r.Control != "" && r.Control != twoWindows && r.Lost == 0:
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
