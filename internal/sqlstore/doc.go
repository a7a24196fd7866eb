// Package sqlstore is the SQL core that all faces share: the stores of package
// persistence over a small [Conn], with every statement written once a
// dialect. A face brings a connection and a way to begin a transaction; a
// dialect brings a file of whole statements and the fence that tells its safe
// mark.
package sqlstore
