// Package facetest puts a face under the conformance suite, on any database
// that it supports. It knows the databases; package gormtest and package
// sqltest know their face.
package facetest
