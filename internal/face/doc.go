// Package face is what the faces share: their options, and what becomes of
// them. Each face names and documents options of its own.
package face
