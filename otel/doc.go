// Package outboxotel makes OpenTelemetry metrics of what a dispatcher does and of
// where it stands. Names, units and attributes are in docs/observability.md.
//
// It is a module of its own, so that nobody else depends on OpenTelemetry.
package outboxotel
