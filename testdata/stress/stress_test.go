package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/testdata/servers"
)

func TestMain(m *testing.M) {
	if isProducer() {
		exit(produceFromEnvironment())
	}
	servers.Main(m)
}

func small(t *testing.T, kind *servers.Kind, events int, control string) Result {
	t.Helper()
	server := servers.Get(t, kind)
	result, err := Stress(t.Context(), Config{
		Server: kind.Name, DSN: servers.CreateDatabase(t, server),
		Events: events, Processes: 2, Producers: 16, Aggregates: 50, Control: control,
	})
	require.NoError(t, err)
	t.Log(result)
	return result
}

func TestNothingIsLost(t *testing.T) {
	for _, kind := range []*servers.Kind{servers.Postgres, servers.MySQL, servers.MariaDB} {
		t.Run(kind.Name, func(t *testing.T) { require.NoError(t, small(t, kind, 4000, "").verdict()) })
	}
}

// The harness can see a loss: it sees that of a cursor without a mark. The
// other controls lose less often; make stress runs them long enough.
func TestHarnessCatchesThePlainCursor(t *testing.T) {
	require.NoError(t, small(t, servers.Postgres, 2000, "plain").verdict())
}

func TestVerdict(t *testing.T) {
	clean := Result{Config: Config{Events: 10}, Committed: 10}
	require.NoError(t, clean.verdict())
	for _, spoil := range []func(*Result){
		func(r *Result) { r.Committed-- },
		func(r *Result) { r.Lost++ },
		func(r *Result) { r.Twice++ },
		func(r *Result) { r.Disorder++ },
		func(r *Result) { r.Phantom++ },
		func(r *Result) { r.Control = "plain" },
	} {
		r := clean
		spoil(&r)
		require.Error(t, r.verdict(), "%+v", r)
	}
	require.Equal(t, "stress server=x events=10 lost=0 twice=0 disorder=0", Result{Config: Config{Server: "x"}, Committed: 10}.String())
}
