package events

import (
	"context"
	"encoding/json"
	"fmt"
)

// JSON returns a handler of events whose payload is a T in JSON. A payload that is
// none is a permanent failure ([Permanent]): the event becomes a dead letter at
// once, and the message says why without the payload. Fields that T does not have
// are ignored.
func JSON[T any](handler func(ctx context.Context, payload T, evt Event) error) Handler {
	return func(ctx context.Context, evt Event) error {
		payload, err := decode[T](evt)
		if err != nil {
			return err
		}
		return handler(ctx, payload, evt)
	}
}

// JSONBatch is [JSON] for handlers of batches: payloads are those of the events,
// in their order. An event whose payload is no T is a permanent failure, and holds
// back none of the others.
func JSONBatch[T any](handler func(ctx context.Context, payloads []T, evts []Event) error) BatchHandler {
	return func(ctx context.Context, evts []Event) error {
		payloads := make([]T, len(evts))
		for i, evt := range evts {
			var err error
			if payloads[i], err = decode[T](evt); err != nil {
				return err
			}
		}
		return handler(ctx, payloads, evts)
	}
}

func decode[T any](evt Event) (payload T, err error) {
	if err := json.Unmarshal(evt.Payload, &payload); err != nil {
		return payload, Permanent(fmt.Errorf("the payload of event %s, type %q, is no %T in JSON: %w", evt.ID, evt.Type, payload, err))
	}
	return payload, nil
}
