module github.com/onward-go/outbox

go 1.26
