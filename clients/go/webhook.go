package penstock

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// WebhookEvent is a verified delivery. ID is the same for a repeat.
type WebhookEvent struct {
	ID   string
	Time time.Time
	Body []byte
}

const webhookTolerance = 5 * time.Minute

// VerifyWebhook returns the delivery if one of the secrets has signed the raw body within five minutes of now. Give both
// secrets during a rotation. The error is a *Problem that is ErrWebhookInvalid.
func VerifyWebhook(body []byte, header http.Header, secrets []string, now time.Time) (*WebhookEvent, error) {
	id, stamp, signatures := header.Get("webhook-id"), header.Get("webhook-timestamp"), header.Get("webhook-signature")
	if id == "" || stamp == "" || signatures == "" {
		return nil, invalidWebhook("a webhook header is missing")
	}
	seconds, err := strconv.ParseInt(stamp, 10, 40)
	at := time.Unix(seconds, 0)
	if err != nil || now.Sub(at).Abs() > webhookTolerance {
		return nil, invalidWebhook("the timestamp is not within five minutes of now")
	}
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil {
			return nil, fmt.Errorf("penstock: a webhook secret is whsec_ and base64: %w", err)
		}
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.", id, stamp)
		mac.Write(body)
		expected := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		for _, signature := range strings.Split(signatures, " ") {
			if hmac.Equal([]byte(signature), []byte(expected)) {
				return &WebhookEvent{ID: id, Time: at, Body: body}, nil
			}
		}
	}
	return nil, invalidWebhook("no secret has signed this body")
}

func invalidWebhook(detail string) error {
	return &Problem{Code: "webhook_invalid", Detail: detail}
}
