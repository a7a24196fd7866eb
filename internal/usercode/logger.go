package usercode

import (
	"context"
	"log/slog"
)

// Logger returns a logger whose records are handled by calls, all of them: whether
// the handler wants a record is for the handler to say, and so asked there, too.
func Logger(of *slog.Logger, calls *Calls) *slog.Logger {
	return slog.New(&handler{calls, of.Handler})
}

// handler asks for its handler in a call.
type handler struct {
	calls *Calls
	of    func() slog.Handler
}

func (h *handler) Enabled(context.Context, slog.Level) bool { return true }

func (h *handler) Handle(ctx context.Context, record slog.Record) error {
	h.calls.Add(func() {
		if of := h.of(); of.Enabled(ctx, record.Level) {
			_ = of.Handle(ctx, record) // there is nobody to tell
		}
	})
	return nil
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.calls, func() slog.Handler { return h.of().WithAttrs(attrs) }}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.calls, func() slog.Handler { return h.of().WithGroup(name) }}
}
