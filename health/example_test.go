package health_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/health"
	"github.com/onward-go/outbox/memstore"
)

func ExampleHandler() {
	outbox := memstore.New()
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)

	mux := http.NewServeMux()
	mux.Handle("/ready", health.Handler(dispatcher, health.WithMaxLag(5*time.Minute), health.WithPolling()))

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/ready", nil))
	fmt.Println(answer.Code) // Poll does not run
	// Output: 503
}
