// Package command is the commands of outboxctl: their flags, what they print, and
// how they end. It holds no SQL: all goes through the public face sqltx.
package command
