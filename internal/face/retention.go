package face

import (
	"cmp"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// Retention is what the options of a run of retention set, of which some are
// Options of the outbox.
type Retention[O ~func(*Config)] struct {
	Options []O
	persistence.RetentionOptions
}

// DryRun makes retention report only.
func DryRun() func(*persistence.RetentionOptions) {
	return func(o *persistence.RetentionOptions) { o.DryRun = true }
}

// NoConsumers lets retention drop events that no cursor has passed.
func NoConsumers() func(*persistence.RetentionOptions) {
	return func(o *persistence.RetentionOptions) { o.NoConsumers = true }
}

// LockTimeout sets how long others may have to wait. Who says 0 does not mean
// the default, so that is refused like what is negative.
func LockTimeout(d time.Duration) func(*persistence.RetentionOptions) {
	return func(o *persistence.RetentionOptions) { o.LockTimeout = cmp.Or(d, -1) }
}

// KeepKeys sets how long dedup keys are kept; 0 is refused likewise.
func KeepKeys(d time.Duration) func(*persistence.RetentionOptions) {
	return func(o *persistence.RetentionOptions) { o.KeepKeys = cmp.Or(d, -1) }
}
