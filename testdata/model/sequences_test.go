package model

import (
	"flag"
	"os"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// checks is how many sequences each backend gets, unless a flag or the
// environment says so: what takes half a minute with the race detector.
const checks = 200

// slow is how much fewer sequences SQLite gets, which syncs files.
const slow = 25

func TestMain(m *testing.M) {
	flag.Parse()
	_, given := os.LookupEnv("RAPID_CHECKS")
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		setChecks(checks)
	}
	os.Exit(m.Run())
}

func allChecks() int { return flag.Lookup("rapid.checks").Value.(flag.Getter).Get().(int) }

func setChecks(n int) {
	if err := flag.Set("rapid.checks", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}

func TestEverySequenceInMemory(t *testing.T) {
	checkAll(t, openMemory, choices, aging)
}

func TestEverySequenceWithEarlyStamps(t *testing.T) {
	checkAll(t, openStamped, choices)
}

func TestEverySequenceWithStrayEvents(t *testing.T) {
	checkAll(t, openStamped, choices, straying, setting)
}

func TestEverySequenceOfDeadLetters(t *testing.T) {
	checkAll(t, openMemory, choices, dying)
}

// Its sequences are short, and what they are to find is rare.
func TestEverySequenceOfBatches(t *testing.T) {
	all := allChecks()
	setChecks(2 * all)
	defer setChecks(all)
	checkAll(t, openMemory, batching)
}

func TestEverySequenceOnSQLite(t *testing.T) {
	all := allChecks()
	setChecks(max(1, all/slow))
	defer setChecks(all)
	checkAll(t, openSQLite(t), choices, straying)
}

// checkAll checks random sequences of the choices.
func checkAll(t *testing.T, open func() backend, choices ...[]choice) {
	sequences := sequences(slices.Concat(choices...))
	rapid.Check(t, func(t *rapid.T) {
		ops, finish := sequences.Draw(t, "sequence"), finishes.Draw(t, "finish")
		rapid.SyncTest(t, func(t *rapid.T) { run(t, open, ops, finish) })
	})
}
