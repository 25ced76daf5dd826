// Package refuse has the errors with which a server refuses requests, in the shape of OpenAI's API.
package refuse

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// An Error is a refusal in OpenAI's shape. Clients choose their exception by Status and read the
// rest.
type Error struct {
	Status  int
	Message string
	Type    string
	Param   string // the field; null if empty
	Code    string // null if empty
}

func (e *Error) Error() string {
	if e.Param != "" {
		return e.Param + ": " + e.Message
	}
	return e.Message
}

// MarshalJSON writes {"error": …}, the body of every response that is no success.
func (e *Error) MarshalJSON() ([]byte, error) {
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	type body struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	var b strings.Builder
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false) // of which messages have no need
	err := to.Encode(struct {
		Error body `json:"error"`
	}{body{e.Error(), e.Type, orNull(e.Param), orNull(e.Code)}}) // clients show the message alone
	return []byte(b.String()), err
}

// maxMessage bounds the message of a bad request, which may repeat what the client sent, in bytes.
const maxMessage = 1024

// Invalid is the error of a request that is wrong in the given field; "" is the request itself.
func Invalid(param, format string, args ...any) *Error {
	message := fmt.Sprintf(format, args...)
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return &Error{Status: http.StatusBadRequest, Message: message, Type: "invalid_request_error", Param: param}
}

// Unsupported is the error of a field that asks for what this server does not do.
func Unsupported(param, format string, args ...any) *Error {
	e := Invalid(param, format, args...)
	e.Code = "unsupported_parameter"
	return e
}

// TooLong is the error of a prompt that leaves no room for an answer.
func TooLong(param string, tokens, context int) *Error {
	e := Invalid(param, "the prompt has %d tokens, want fewer than the model's context of %d", tokens, context)
	e.Code = "context_length_exceeded"
	return e
}

// Unauthorized is the error of a request without a valid key.
func Unauthorized() *Error {
	return &Error{
		Status: http.StatusUnauthorized, Message: "no valid API key: want the header Authorization: Bearer KEY",
		Type: "authentication_error", Code: "invalid_api_key",
	}
}

// Forbidden is the error of a request that its client may not make.
func Forbidden(message string) *Error {
	return &Error{Status: http.StatusForbidden, Message: message, Type: "permission_error", Code: "origin_not_allowed"}
}

// NoModel is the error of a model that the server does not have.
func NoModel(name string) *Error {
	e := Invalid("model", "the model %q does not exist", name)
	e.Status, e.Code = http.StatusNotFound, "model_not_found"
	return e
}

// NotFound is the error of a path that the server does not have.
func NotFound(method, path string) *Error {
	e := Invalid("", "no route %s %s", method, path)
	e.Status, e.Code = http.StatusNotFound, "unknown_url"
	return e
}

// NoMethod is the error of a path that the server has for another method.
func NoMethod(method, path, want string) *Error {
	e := Invalid("", "%.20s is not allowed for %s, want %s", method, path, want)
	e.Status, e.Code = http.StatusMethodNotAllowed, "method_not_allowed"
	return e
}

// Busy is the error of a request that finds the queue full. The client may try again later.
func Busy(format string, args ...any) *Error {
	return &Error{Status: http.StatusTooManyRequests, Message: fmt.Sprintf(format, args...), Type: "rate_limit_error", Code: "queue_full"}
}

// Unavailable is the error of a server that is loading or draining.
func Unavailable(format string, args ...any) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Message: fmt.Sprintf(format, args...), Type: "service_unavailable_error"}
}

// Internal is the error of a request that failed through no fault of the client's.
func Internal(format string, args ...any) *Error {
	return &Error{Status: http.StatusInternalServerError, Message: fmt.Sprintf(format, args...), Type: "server_error"}
}
