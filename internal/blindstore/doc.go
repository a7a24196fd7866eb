// Package blindstore is for tests of dispatchers that find a marker only when they
// record it.
package blindstore
