// Official asks with github.com/openai/openai-go, OpenAI's own client.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"clients/plan"
)

func main() {
	ctx := context.Background()
	p := plan.Read()
	at := func(base, key string) openai.Client {
		return openai.NewClient(option.WithBaseURL(base), option.WithAPIKey(key), option.WithMaxRetries(0))
	}
	client := at(p.Base, p.Key)
	chat := func() openai.ChatCompletionNewParams {
		return openai.ChatCompletionNewParams{
			Model: p.Model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(p.Prompt)},
			MaxTokens: openai.Int(p.MaxTokens), Temperature: openai.Float(0),
		}
	}
	// refused expects a typed error.
	refused := func(err error, status int, code, param string) error {
		var e *openai.Error
		if !errors.As(err, &e) {
			return fmt.Errorf("the error is %v, want an openai.Error", err)
		}
		return errors.Join(plan.Equal(e.StatusCode, status, "status"), plan.Equal(e.Code, code, "code"), plan.Equal(e.Param, param, "param"))
	}

	plan.Check("models", func() error {
		page, err := client.Models.List(ctx)
		if err != nil {
			return err
		}
		return errors.Join(plan.Equal(len(page.Data), 1, "the number of models"), plan.Equal(page.Data[0].ID, p.Model, "the model"))
	})
	plan.Check("chat", func() error {
		r, err := client.Chat.Completions.New(ctx, chat())
		if err != nil {
			return err
		}
		c := r.Choices[0]
		return errors.Join(plan.Equal(c.Message.Content, p.Text, "text"), plan.Equal(c.FinishReason, "length", "finish_reason"),
			plan.Equal(r.Usage.CompletionTokens, p.MaxTokens, "completion_tokens"))
	})
	plan.Check("stream", func() error {
		body := chat()
		body.StreamOptions.IncludeUsage = openai.Bool(true)
		s := client.Chat.Completions.NewStreaming(ctx, body)
		var all openai.ChatCompletionAccumulator
		for s.Next() {
			if !all.AddChunk(s.Current()) {
				return errors.New("a chunk that does not belong to the others")
			}
		}
		if s.Err() != nil {
			return s.Err()
		}
		c := all.Choices[0]
		return errors.Join(plan.Equal(c.Message.Content, p.Text, "text"), plan.Equal(c.FinishReason, "length", "finish_reason"),
			plan.Equal(all.Usage.CompletionTokens, p.MaxTokens, "completion_tokens"))
	})
	plan.Check("logprobs", func() error {
		body := chat()
		body.Logprobs, body.TopLogprobs = openai.Bool(true), openai.Int(2)
		r, err := client.Chat.Completions.New(ctx, body)
		if err != nil {
			return err
		}
		var text []byte
		for _, t := range r.Choices[0].Logprobs.Content {
			for _, b := range t.Bytes {
				text = append(text, byte(b))
			}
			if len(t.TopLogprobs) != 2 || t.TopLogprobs[0].Logprob != t.Logprob {
				return fmt.Errorf("alternatives %+v of %q", t.TopLogprobs, t.Token)
			}
		}
		return plan.Equal(string(text), p.Text, "the text of the tokens")
	})
	plan.Check("n", func() error {
		body := chat()
		body.N, body.Seed, body.Temperature = openai.Int(2), openai.Int(p.Seed), openai.Float(p.Temperature)
		r, err := client.Chat.Completions.New(ctx, body)
		if err != nil {
			return err
		}
		var got []string
		for _, c := range r.Choices {
			got = append(got, c.Message.Content)
		}
		return plan.Equal(got, p.Sampled, "texts")
	})
	plan.Check("stop", func() error {
		body := chat()
		body.Stop.OfStringArray = []string{p.Stop}
		r, err := client.Chat.Completions.New(ctx, body)
		if err != nil {
			return err
		}
		return errors.Join(plan.Equal(r.Choices[0].Message.Content, p.Stopped, "text"), plan.Equal(r.Choices[0].FinishReason, "stop", "finish_reason"))
	})
	plan.Check("completions", func() error {
		body := openai.CompletionNewParams{Model: openai.CompletionNewParamsModel(p.Model), MaxTokens: openai.Int(p.MaxTokens), Temperature: openai.Float(0)}
		body.Prompt.OfString = openai.String(p.Prompt)
		r, err := client.Completions.New(ctx, body)
		if err != nil {
			return err
		}
		return plan.Equal(r.Choices[0].Text, p.Text, "text")
	})
	plan.Check("responses", func() error {
		body := responses.ResponseNewParams{Model: p.Model, MaxOutputTokens: openai.Int(p.MaxTokens), Temperature: openai.Float(0)}
		body.Input.OfString = openai.String(p.Prompt)
		r, err := client.Responses.New(ctx, body)
		if err != nil {
			return err
		}
		text := ""
		s := client.Responses.NewStreaming(ctx, body)
		for s.Next() {
			if e, ok := s.Current().AsAny().(responses.ResponseTextDeltaEvent); ok {
				text += e.Delta
			}
		}
		return errors.Join(s.Err(), plan.Equal(r.OutputText(), p.Text, "text"), plan.Equal(text, p.Text, "streamed text"))
	})
	plan.Check("bad request", func() error {
		body := chat()
		body.Temperature = openai.Float(9)
		_, err := client.Chat.Completions.New(ctx, body)
		var e *openai.Error
		if errors.As(err, &e) && e.Type != "invalid_request_error" {
			return fmt.Errorf("the error's type is %q", e.Type)
		}
		return refused(err, 400, "", "temperature")
	})
	plan.Check("wrong key", func() error {
		other := at(p.Base, "wrong")
		_, err := other.Models.List(ctx)
		return refused(err, 401, "invalid_api_key", "")
	})
	plan.Check("not found", func() error {
		_, err := client.Models.Get(ctx, "nothing")
		return refused(err, 404, "model_not_found", "model")
	})
	plan.Check("busy", func() error {
		busy := at(p.Busy, p.Key)
		return refused(plan.UntilBusy(func() error {
			_, err := busy.Chat.Completions.New(ctx, chat())
			return err
		}), 429, "queue_full", "")
	})
}
