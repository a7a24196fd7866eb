package events

// signal wakes whoever waits for it. Several tellings before that are one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// tell never blocks.
func (s signal) tell() {
	select {
	case s <- struct{}{}:
	default:
	}
}
