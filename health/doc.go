// Package health answers the question of a load balancer, an orchestrator or an
// alert: is this dispatcher getting on? See [Handler].
package health
