package outboxtest

import (
	"context"
	"slices"
	"testing"
	"time"
)

// ruleTimeout bounds each rule, so that a deadlock is a failure.
const ruleTimeout = time.Minute

type rule struct {
	rule  string
	check func(*suite)
}

// Run checks every rule against backends that open returns.
func Run(t *testing.T, open Open) {
	t.Helper()
	for _, r := range slices.Concat(transactionRules, chainRules, appendRules, readRules, windowRules, idempotencyRules, cursorRules, countRules, leaseRules, lifeRules, subscriptionRules, forgetRules, deadLetterRules, dispatcherRules, laneRules, replicaRules, replayRules, retentionRules, dedupRules, inspectRules, statusRules, validationRules) {
		t.Run(r.rule, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), ruleTimeout)
			defer cancel()
			r.check(&suite{T: t, Backend: open(t), ctx: ctx, open: open})
		})
	}
}
