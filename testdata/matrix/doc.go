// Package matrix runs the library on every database: face × server. A new
// server is one entry of Servers, a new face one of Faces.
package matrix
