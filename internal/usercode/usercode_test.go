package usercode_test

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/internal/usercode"
)

var errPlain = errors.New("plain")

// hostile is an error of which each method does what it is told to.
type hostile struct{ text, is, as, unwrap func() }

func do(fn func()) {
	if fn != nil {
		fn()
	}
}

func (h hostile) Error() string { do(h.text); return "hostile" }
func (h hostile) Is(error) bool { do(h.is); return false }
func (h hostile) As(any) bool   { do(h.as); return false }
func (h hostile) Unwrap() error { do(h.unwrap); return errPlain }

type cyclic struct{}

func (c *cyclic) Error() string   { return "cyclic" }
func (c *cyclic) Unwrap() []error { return []error{errPlain, c} }

type wrapping struct{ cause error }

func (w *wrapping) Error() string { return "wrapping " + w.cause.Error() }
func (w *wrapping) Unwrap() error { return w.cause }

func TestASoundErrorKeepsTextAndChain(t *testing.T) {
	err := fmt.Errorf("outer: %w", errors.Join(errPlain, hostile{}))
	sound := usercode.Sound(err)
	require.EqualError(t, sound, "outer: plain\nhostile")
	require.ErrorIs(t, sound, errPlain)
	require.ErrorAs(t, sound, &hostile{})
	require.Same(t, sound, usercode.Sound(sound))
	require.NoError(t, usercode.Sound(nil))
	require.True(t, usercode.Is(err, errPlain))
	require.False(t, usercode.Is(nil, errPlain))
}

func TestAnErrorWhoseMethodsBreakIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		var null *wrapping
		broken := map[string]error{"nil pointer": null, "cyclic": &cyclic{}}
		for way, fn := range map[string]func(){
			"panics": func() { panic(hostile{text: func() { panic("twice") }}) },
			"exits":  runtime.Goexit,
			"blocks": func() { <-release },
		} {
			broken["Error "+way] = hostile{text: fn}
			broken["Is "+way] = hostile{is: fn}
			broken["As "+way] = hostile{as: fn}
			broken["Unwrap "+way] = hostile{unwrap: fn}
			broken["a joined one "+way] = errors.Join(errPlain, hostile{text: fn})
		}
		for name, err := range broken {
			sound := usercode.Sound(err)
			require.ErrorContains(t, sound, "whose methods cannot be called", name)
			require.NotErrorIs(t, sound, errPlain, name)
		}
		require.ErrorContains(t, usercode.Sound(null), "*usercode_test.wrapping, whose methods cannot be called: it panicked: runtime error: invalid memory address")
	})
}

func TestRunMakesAnErrorOfWhatDoesNotReturn(t *testing.T) {
	what := func() string { return "the code" }
	for name, value := range map[string]any{
		"the code panicked: plain":                     errPlain,
		"the code panicked: text":                      "text",
		"which cannot be printed":                      fmt.Stringer(nastyStringer{}),
		"usercode_test.hostile, whose methods cannot ": hostile{text: func() { runtime.Goexit() }},
	} {
		err := usercode.Run(what, func() error { panic(value) }, nil)
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, "usercode_test.go", "the stack")
	}
	require.ErrorIs(t, usercode.Run(what, func() error { panic(errPlain) }, nil), errPlain)
	require.ErrorIs(t, usercode.Run(what, func() error { return errPlain }, nil), errPlain)
	require.NoError(t, usercode.Apart(what, func() error { return nil }))
	err := usercode.Apart(what, func() error { runtime.Goexit(); return nil })
	require.ErrorContains(t, err, "the code called runtime.Goexit")
	require.ErrorContains(t, err, "usercode_test.go", "the stack")
}

// nastyStringer ends the goroutine that prints it.
type nastyStringer struct{}

func (nastyStringer) String() string { runtime.Goexit(); return "" }

func TestCallsAreMadeInOrderWhateverTheyDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dropped atomic.Int64
		var problems []string
		calls := usercode.NewCalls("a call", &dropped, func(err error) { problems = append(problems, strings.SplitN(err.Error(), "\n", 2)[0]) })
		var made []int
		for i := range 6 {
			calls.Add(func() {
				time.Sleep(100 * time.Millisecond)
				made = append(made, i)
				switch i {
				case 1:
					panic("one")
				case 3:
					runtime.Goexit()
				}
			})
		}
		calls.Drain(time.Hour)
		require.Equal(t, []int{0, 1, 2, 3, 4, 5}, made)
		require.Equal(t, []string{"a call panicked: one", "a call called runtime.Goexit"}, problems)
		calls.Drain(time.Hour) // there is nothing to wait for
	})
}

func TestCallsThatDoNotReturnAreDroppedAndTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dropped atomic.Int64
		var problems []string
		calls := usercode.NewCalls("a call", &dropped, func(err error) { problems = append(problems, err.Error()) })
		release := make(chan struct{})
		made := 0
		calls.Add(func() { <-release })
		synctest.Wait()
		began := time.Now()
		for range 5000 {
			calls.Add(func() { made++ })
		}
		require.Equal(t, usercode.Patience, time.Since(began), "all of them together wait no longer")
		require.Equal(t, int64(5000-1024), dropped.Load())
		calls.Drain(time.Hour)
		require.Equal(t, usercode.Patience, time.Since(began))
		close(release)
		synctest.Wait() // Drain would not wait for the call that has taken so long
		require.Equal(t, 1024, made)
		require.Equal(t, []string{"a call has not returned for 1s: 3976 calls were dropped"}, problems)
	})
}

func TestSlowCallsAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dropped atomic.Int64
		calls := usercode.NewCalls("a call", &dropped, nil)
		var made atomic.Int64
		for range 2000 {
			calls.Add(func() { time.Sleep(100 * time.Millisecond); made.Add(1) })
		}
		calls.Drain(time.Minute)
		require.Less(t, made.Load(), int64(2000), "Drain does not wait for longer than it is told")
		calls.Drain(time.Hour)
		require.EqualValues(t, 2000, made.Load())
		require.Zero(t, dropped.Load())
	})
}

func TestALoggerIsCalledApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dropped atomic.Int64
		calls := usercode.NewCalls("the logger", &dropped, nil)
		var text strings.Builder
		logger := usercode.Logger(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})), calls)
		logger.Debug("not wanted")
		logger.With("a", 1).WithGroup("g").Info("wanted", "b", hostile{text: runtime.Goexit})
		logger.Info("next")
		calls.Drain(time.Hour)
		require.Equal(t, "level=INFO msg=next\n", text.String())
	})
}
