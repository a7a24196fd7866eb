package outboxotel_test

import (
	"context"
	"fmt"
	"log"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	outboxotel "github.com/onward-go/outbox/otel"
)

func Example() {
	outbox := memstore.New()
	provider := sdk.NewMeterProvider() // with a reader of yours

	metrics, err := outboxotel.New(provider)
	if err != nil {
		log.Fatal(err)
	}
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithObserver(metrics.Observer()))
	registration, err := metrics.Watch(dispatcher)
	if err != nil {
		log.Fatal(err)
	}
	defer registration.Unregister()

	fmt.Println(dispatcher.RunOnce(context.Background(), 10))
	// Output: 0 <nil>
}
