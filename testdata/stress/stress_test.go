package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/testdata/servers"
)

func TestMain(m *testing.M) {
	if isProducer() {
		exit(produceFromEnvironment())
	}
	servers.Main(m)
}

// everywhere makes a small run on each kind of server.
func everywhere(t *testing.T, config Config) {
	for _, kind := range servers.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, small(t, kind, config).verdict())
		})
	}
}

func small(t *testing.T, kind *servers.Kind, config Config) Result {
	t.Helper()
	config.Server, config.DSN = kind.Name, servers.CreateDatabase(t, servers.Get(t, kind))
	result, err := Stress(t.Context(), config)
	require.NoError(t, err)
	t.Log(result)
	return result
}

// One of the producers keeps its transaction open for two seconds.
func TestNothingIsLost(t *testing.T) {
	everywhere(t, Config{
		Events: 1500, Processes: 2, Producers: 16, Aggregates: 50,
		Pause: 10 * time.Millisecond, Open: 2 * time.Second,
	})
}

// The same through the other faces.
func TestNothingIsLostThroughAnyFace(t *testing.T) {
	for _, kind := range servers.Kinds() {
		for name := range faces {
			if name == gormFace || name == "pgxtx" && !strings.HasPrefix(kind.Name, "postgres") {
				continue
			}
			t.Run(kind.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				require.NoError(t, small(t, kind, Config{
					Face: name, Events: 1000, Processes: 2, Producers: 16, Aggregates: 50, Pause: 10 * time.Millisecond, Open: 2 * time.Second,
				}).verdict())
			})
		}
	}
}

// Four processes write one aggregate as fast as it goes.
func TestAHotAggregateKeepsItsOrder(t *testing.T) {
	everywhere(t, Config{Events: 600, Processes: 4, Producers: 8, Aggregates: 1})
}

// The harness can see a loss: it sees that of a cursor without a mark. The
// other controls lose less often; make stress runs them long enough.
func TestHarnessCatchesThePlainCursor(t *testing.T) {
	everywhere(t, Config{
		Events: 1500, Processes: 2, Producers: 16, Aggregates: 50,
		Pause: 10 * time.Millisecond, Control: "plain",
	})
}

func TestVerdict(t *testing.T) {
	clean := Result{Config: Config{Events: 10, Open: 1}, Committed: 10, Beside: 1}
	require.NoError(t, clean.verdict())
	for _, spoil := range []func(*Result){
		func(r *Result) { r.Committed-- },
		func(r *Result) { r.Lost++ },
		func(r *Result) { r.Twice++ },
		func(r *Result) { r.Disorder++ },
		func(r *Result) { r.Phantom++ },
		func(r *Result) { r.Beside-- },
		func(r *Result) { r.Control = "plain" },
	} {
		r := clean
		spoil(&r)
		require.Error(t, r.verdict(), "%+v", r)
	}
	require.Equal(t, "stress server=x events=10 lost=0 twice=0 disorder=0", Result{Config: Config{Server: "x"}, Committed: 10}.String())
	require.Equal(t, "stress server=x isolation=READ-COMMITTED open=10s beside=7 events=10 lost=0 twice=0 disorder=0",
		Result{Config: Config{Server: "x", Isolation: "READ COMMITTED", Open: 10 * time.Second}, Committed: 10, Beside: 7}.String())
}
