// Sashabaranov asks with github.com/sashabaranov/go-openai, the client that most Go programs used
// before there was an official one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/sashabaranov/go-openai"

	"clients/plan"
)

// coldest is a temperature at which nothing is drawn but the likeliest token. The client leaves 0
// out, which stands for 1.
const coldest = 1e-6

func main() {
	ctx := context.Background()
	p := plan.Read()
	at := func(base, key string) *openai.Client {
		c := openai.DefaultConfig(key)
		c.BaseURL = base
		return openai.NewClientWithConfig(c)
	}
	client := at(p.Base, p.Key)
	chat := func() openai.ChatCompletionRequest {
		return openai.ChatCompletionRequest{
			Model: p.Model, Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: p.Prompt}},
			MaxTokens: int(p.MaxTokens), Temperature: coldest,
		}
	}
	refused := func(err error, status int, code any, param string) error {
		var e *openai.APIError
		if !errors.As(err, &e) {
			return fmt.Errorf("the error is %v, want an openai.APIError", err)
		}
		got := ""
		if e.Param != nil {
			got = *e.Param
		}
		return errors.Join(plan.Equal(e.HTTPStatusCode, status, "status"), plan.Equal(e.Code, code, "code"), plan.Equal(got, param, "param"))
	}

	plan.Check("models", func() error {
		l, err := client.ListModels(ctx)
		if err != nil {
			return err
		}
		return errors.Join(plan.Equal(len(l.Models), 1, "the number of models"), plan.Equal(l.Models[0].ID, p.Model, "the model"))
	})
	plan.Check("chat", func() error {
		r, err := client.CreateChatCompletion(ctx, chat())
		if err != nil {
			return err
		}
		c := r.Choices[0]
		return errors.Join(plan.Equal(c.Message.Content, p.Text, "text"), plan.Equal(c.FinishReason, openai.FinishReasonLength, "finish_reason"),
			plan.Equal(r.Usage.CompletionTokens, int(p.MaxTokens), "completion_tokens"))
	})
	plan.Check("stream", func() error {
		body := chat()
		body.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
		s, err := client.CreateChatCompletionStream(ctx, body)
		if err != nil {
			return err
		}
		defer s.Close()
		text, reason, tokens := "", openai.FinishReason(""), 0
		for {
			c, err := s.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			for _, x := range c.Choices {
				text += x.Delta.Content
				if x.FinishReason != "" {
					reason = x.FinishReason
				}
			}
			if c.Usage != nil {
				tokens = c.Usage.CompletionTokens
			}
		}
		return errors.Join(plan.Equal(text, p.Text, "text"), plan.Equal(reason, openai.FinishReasonLength, "finish_reason"), plan.Equal(tokens, int(p.MaxTokens), "completion_tokens"))
	})
	plan.Check("logprobs", func() error {
		body := chat()
		body.LogProbs, body.TopLogProbs = true, 2
		r, err := client.CreateChatCompletion(ctx, body)
		if err != nil {
			return err
		}
		text := ""
		for _, t := range r.Choices[0].LogProbs.Content {
			text += string(t.Bytes)
			if len(t.TopLogProbs) != 2 || t.TopLogProbs[0].LogProb != t.LogProb {
				return fmt.Errorf("alternatives %+v of %q", t.TopLogProbs, t.Token)
			}
		}
		return plan.Equal(text, p.Text, "the text of the tokens")
	})
	plan.Check("stop", func() error {
		body := chat()
		body.Stop = []string{p.Stop}
		r, err := client.CreateChatCompletion(ctx, body)
		if err != nil {
			return err
		}
		return errors.Join(plan.Equal(r.Choices[0].Message.Content, p.Stopped, "text"), plan.Equal(r.Choices[0].FinishReason, openai.FinishReasonStop, "finish_reason"))
	})
	plan.Check("completions", func() error {
		r, err := client.CreateCompletion(ctx, openai.CompletionRequest{Model: p.Model, Prompt: p.Prompt, MaxTokens: int(p.MaxTokens), Temperature: coldest})
		if err != nil {
			return err
		}
		return plan.Equal(r.Choices[0].Text, p.Text, "text")
	})
	plan.Check("bad request", func() error {
		body := chat()
		body.PresencePenalty = 3
		_, err := client.CreateChatCompletion(ctx, body)
		return refused(err, 400, 0, "presence_penalty") // null, as the client reads it
	})
	plan.Check("wrong key", func() error {
		_, err := at(p.Base, "wrong").ListModels(ctx)
		return refused(err, 401, "invalid_api_key", "")
	})
	plan.Check("not found", func() error {
		_, err := client.GetModel(ctx, "nothing")
		return refused(err, 404, "model_not_found", "model")
	})
	plan.Check("busy", func() error {
		busy := at(p.Busy, p.Key)
		return refused(plan.UntilBusy(func() error {
			_, err := busy.CreateChatCompletion(ctx, chat())
			return err
		}), 429, "queue_full", "")
	})
}
