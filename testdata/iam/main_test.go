package iam_test

import (
	"testing"

	"github.com/onward-go/outbox/testdata/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }
