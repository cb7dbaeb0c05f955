// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// maxClockSkew is how old an OAuth timestamp may be, in seconds.
const maxClockSkew = 300

// oauthRequired are the parameters that make a request an OAuth request.
var oauthRequired = []string{
	"oauth_consumer_key", "oauth_token", "oauth_signature", "oauth_signature_method", "oauth_timestamp", "oauth_nonce",
}

// nonceKey identifies a nonce by consumer and token.
type nonceKey struct{ consumer, token, nonce string }

// authenticate returns the user of a request: nil without an error if it carries no OAuth.
func (s *Simulator) authenticate(r *http.Request) (*user, error) {
	params, ok := oauthParams(r)
	if !ok {
		return nil, nil
	}
	u, key := s.userOfConsumer(params["oauth_consumer_key"])
	if u == nil {
		return nil, unauthorized(invalidKey)
	}
	if err := s.verify(params, key); err != nil {
		return nil, err
	}
	return u, nil
}

// invalidKey is the complaint about a key whose consumer MAAS does not know.
const invalidKey = "Authorization Error: Invalid API key."

// verify refuses a request that was not signed with the key, or is not fresh.
func (s *Simulator) verify(params map[string]string, key apiKey) error {
	if key.token != params["oauth_token"] {
		return unauthorized("Authorization Error: 'Invalid access token: " + params["oauth_token"] + "'")
	}
	if err := s.checkFreshness(params); err != nil {
		return err
	}
	if want := "&" + key.secret; params["oauth_signature"] != want {
		return unauthorized("Authorization Error: 'Invalid signature. Expected signature base string: " + want + "'")
	}
	return nil
}

// checkFreshness refuses timestamps that are too old and nonces that were used before.
func (s *Simulator) checkFreshness(params map[string]string) error {
	stamp, err := strconv.ParseInt(params["oauth_timestamp"], 10, 64)
	if err != nil {
		return unauthorized("Authorization Error: 'Invalid timestamp'")
	}
	now := s.time.clock.Now().Unix()
	if now-stamp > maxClockSkew {
		return unauthorized("Authorization Error: 'Expired timestamp: given " + strconv.FormatInt(stamp, 10) + " and now " +
			strconv.FormatInt(now, 10) + " has a greater difference than threshold 300'")
	}
	key := nonceKey{params["oauth_consumer_key"], params["oauth_token"], params["oauth_nonce"]}
	if _, used := s.nonces[key]; used {
		return unauthorized("Authorization Error: 'Nonce already used: " + key.nonce + "'")
	}
	s.nonces[key] = stamp
	s.forgetNonces(now)
	return nil
}

// forgetNonces drops nonces whose timestamps would be refused anyway.
func (s *Simulator) forgetNonces(now int64) {
	if now < s.nonceSweep+maxClockSkew {
		return
	}
	s.nonceSweep = now
	for key, stamp := range s.nonces {
		if now-stamp > maxClockSkew {
			delete(s.nonces, key)
		}
	}
}

func (s *Simulator) userOfConsumer(consumer string) (*user, apiKey) {
	for _, u := range s.db.users {
		for _, key := range u.keys {
			if key.consumer == consumer {
				return u, key
			}
		}
	}
	return nil, apiKey{}
}

// claimedUser returns the name of the user whose API key a request names, or "".
func (s *Simulator) claimedUser(r *http.Request) string {
	params, ok := oauthParams(r)
	if !ok {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if u, _ := s.userOfConsumer(params["oauth_consumer_key"]); u != nil {
		return u.name
	}
	return ""
}

// oauthParams parses the Authorization header; false if it is no complete OAuth header.
func oauthParams(r *http.Request) (map[string]string, bool) {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "OAuth ")
	if !ok {
		return nil, false
	}
	params := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			continue
		}
		value, err := url.PathUnescape(strings.Trim(value, `"`))
		if err == nil {
			params[key] = value
		}
	}
	for _, key := range oauthRequired {
		if _, ok := params[key]; !ok {
			return nil, false
		}
	}
	return params, true
}

func unauthorized(text string) *apiError {
	e := textError(http.StatusUnauthorized, "%s", text)
	e.header = http.Header{"WWW-Authenticate": {`OAuth realm="OAuth"`}}
	return e
}
