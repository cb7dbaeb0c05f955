// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/time/rate"
)

// The contents of requests, and secrets that must not be readable in errors.
const (
	fuzzSecret   = "the9secret7of5the3key1"
	fuzzUserData = "#cloud-config join-token"
	fuzzPEM      = "-----BEGIN FUZZ KEY----- abcdef\n"
)

// canned is a MAAS that sends one response to everything.
type canned struct {
	status  int
	headers http.Header
	body    []byte
}

func (c *canned) RoundTrip(request *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: c.status, Status: fmt.Sprint(c.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: c.headers.Clone(), Body: io.NopCloser(bytes.NewReader(c.body)), ContentLength: -1, Request: request,
	}, nil
}

// Calls of fuzzCalls that send more secrets than the key.
const deployCall, registerCall, powerCall = 3, 10, 31

// fuzzCalls are all calls, in an order that the corpus depends on: append only. Each returns its result, or nil.
var fuzzCalls = []func(context.Context, *Client) (any, error){
	func(ctx context.Context, c *Client) (any, error) { return value(c.ListMachines(ctx, MachineFilter{})) },
	func(ctx context.Context, c *Client) (any, error) { return value(c.GetMachine(ctx, "abc123")) },
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.AllocateMachine(ctx, Unrecorded("a test"), AllocateParams{AgentName: "x"}))
	},
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.DeployMachine(ctx, Unrecorded("a test"), "abc123", DeployParams{UserData: []byte(fuzzUserData)}))
	},
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.SetWorkloadAnnotations(ctx, Unrecorded("a test"), "abc123", map[string]string{"a": "b"}))
	},
	func(ctx context.Context, c *Client) (any, error) {
		return nil, c.DeleteMachine(ctx, Unrecorded("a test"), "abc123")
	},
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.LinkSubnet(ctx, Unrecorded("a test"), "abc123", 1, LinkParams{Mode: LinkModeAuto}))
	},
	func(ctx context.Context, c *Client) (any, error) { return value(c.ListVMHosts(ctx)) },
	func(ctx context.Context, c *Client) (any, error) { return value(c.GetVMHost(ctx, 1)) },
	func(ctx context.Context, c *Client) (any, error) { return value(c.VMHostPower(ctx, 1)) },
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.CreateLXDHost(ctx, Unrecorded("a test"), VMHostParams{VMHostPower: VMHostPower{Key: fuzzPEM}}))
	},
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.Compose(ctx, Unrecorded("a test"), 1, ComposeParams{}))
	},
	func(ctx context.Context, c *Client) (any, error) { return value(c.ListZones(ctx)) },
	func(ctx context.Context, c *Client) (any, error) { return value(c.ListResourcePools(ctx)) },
	func(ctx context.Context, c *Client) (any, error) { return value(c.ListSubnets(ctx)) },
	func(ctx context.Context, c *Client) (any, error) { return value(c.ListDomains(ctx)) },
	func(ctx context.Context, c *Client) (any, error) { return value(c.ListDNSResources(ctx, "a.maas")) },
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.CreateDNSResource(ctx, Unrecorded("a test"), "a.maas", nil, 1))
	},
	func(ctx context.Context, c *Client) (any, error) { return value(c.Version(ctx)) },
	func(ctx context.Context, c *Client) (any, error) { return value(c.WhoAmI(ctx)) },
	func(ctx context.Context, c *Client) (any, error) { return value(c.ListImages(ctx)) },
	func(ctx context.Context, c *Client) (any, error) { return value(c.ListTags(ctx)) },
	func(ctx context.Context, c *Client) (any, error) { return value(c.TaggedMachines(ctx, "bad")) },
	func(ctx context.Context, c *Client) (any, error) {
		return nil, c.CreateTag(ctx, Unrecorded("a test"), Tag{Name: "bad"})
	},
	func(ctx context.Context, c *Client) (any, error) {
		return nil, c.CommentTag(ctx, Unrecorded("a test"), Tag{Name: "bad"})
	},
	func(ctx context.Context, c *Client) (any, error) {
		return nil, c.DeleteTag(ctx, Unrecorded("a test"), "bad")
	},
	func(ctx context.Context, c *Client) (any, error) {
		return nil, c.TagMachine(ctx, Unrecorded("a test"), "bad", "abc123")
	},
	func(ctx context.Context, c *Client) (any, error) {
		return nil, c.UntagMachines(ctx, Unrecorded("a test"), "bad", []string{"abc123"})
	},
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.PowerOnMachine(ctx, Unrecorded("a test"), "abc123", ""))
	},
	func(ctx context.Context, c *Client) (any, error) { return value(c.QueryPower(ctx, "abc123")) },
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.CreateInterface(ctx, Unrecorded("a test"), "abc123", InterfaceSpec{Type: InterfaceBond}))
	},
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.UpdateInterface(ctx, Unrecorded("a test"), "abc123", 1, InterfaceUpdate{}))
	},
	func(ctx context.Context, c *Client) (any, error) {
		return nil, c.DeleteInterface(ctx, Unrecorded("a test"), "abc123", 1)
	},
	func(ctx context.Context, c *Client) (any, error) { return value(c.ListVLANs(ctx, 1)) },
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.SetStorageLayout(ctx, Unrecorded("a test"), "abc123", StorageLayout{Name: "lvm", RootDevice: 1}))
	},
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.RestoreStorage(ctx, Unrecorded("a test"), "abc123"))
	},
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.PickMachine(ctx, AllocateParams{Zone: "z"}))
	},
	func(ctx context.Context, c *Client) (any, error) { return value(c.GetImage(ctx, 7)) },
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.CreateImage(ctx, Unrecorded("a test"), CreateImageParams{Name: "x"}))
	},
	func(ctx context.Context, c *Client) (any, error) {
		return nil, c.UploadImagePiece(ctx, Unrecorded("a test"), 7, 9, []byte("piece"))
	},
	func(ctx context.Context, c *Client) (any, error) {
		return nil, c.DeleteImage(ctx, Unrecorded("a test"), 7)
	},
	func(ctx context.Context, c *Client) (any, error) { return value(c.CountRegionControllers(ctx)) },
	func(ctx context.Context, c *Client) (any, error) { return value(c.Instances(ctx)) },
	func(ctx context.Context, c *Client) (any, error) { return value(c.SubnetAddresses(ctx, 1)) },
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.CreateDevice(ctx, Unrecorded("a test"), CreateDeviceParams{Hostname: "x"}))
	},
	func(ctx context.Context, c *Client) (any, error) { return value(c.ListDevices(ctx, DeviceFilter{})) },
	func(ctx context.Context, c *Client) (any, error) { return value(c.GetDevice(ctx, "abc123")) },
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.AnnotateDevice(ctx, Unrecorded("a test"), "abc123", map[string]string{"a": "b"}))
	},
	func(ctx context.Context, c *Client) (any, error) {
		return nil, c.DeleteDevice(ctx, Unrecorded("a test"), "abc123")
	},
	func(ctx context.Context, c *Client) (any, error) { return value(c.AllMachines(ctx)) },
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.StartTests(ctx, Unrecorded("a test"), "abc123", TestParams{Scripts: []string{"x"}}))
	},
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.MarkMachineBroken(ctx, Unrecorded("a test"), "abc123", ""))
	},
	func(ctx context.Context, c *Client) (any, error) { return value(c.TestResults(ctx, "abc123")) },
	func(ctx context.Context, c *Client) (any, error) {
		return value(c.TestOutput(ctx, "abc123", TestResult{ID: 1, Set: 2}))
	},
	func(ctx context.Context, c *Client) (any, error) { return value(c.TestScripts(ctx)) },
}

func value[T any](v T, err error) (any, error) { return v, err }

// FuzzAnswer gives any response to any call: the result must be usable, or an *Error that can be shown to people.
func FuzzAnswer(f *testing.F) {
	client, err := NewClient(Config{Endpoint: "http://maas.example/MAAS", APIKey: "consumer:token:" + fuzzSecret})
	if err != nil {
		f.Fatal(err)
	}
	client.limiter = rate.NewLimiter(rate.Inf, 1)
	f.Fuzz(func(t *testing.T, which uint8, status uint16, retryAfter, location string, body []byte) {
		answer := &canned{status: 100 + int(status)%900, headers: http.Header{}, body: body}
		answer.headers["Retry-After"], answer.headers["Location"] = []string{retryAfter}, []string{location}
		client.base, client.circuit = answer, newCircuit("fuzz") // Each response counts by itself.
		which %= uint8(len(fuzzCalls))
		got, err := fuzzCalls[which](t.Context(), client)
		if err == nil {
			checkUsable(t, got)
			return
		}
		secrets := []string{fuzzSecret, "Expected signature base string:"}
		switch which {
		case deployCall:
			secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte(fuzzUserData)))
		case registerCall, powerCall:
			secrets = append(secrets, strings.TrimSpace(fuzzPEM))
		}
		checkPresentable(t, err, secrets...)
	})
}

// checkUsable wants what callers rely on: ids where something has one, and lists that are there.
func checkUsable(t *testing.T, got any) {
	t.Helper()
	switch got := got.(type) {
	case []*Machine:
		if got == nil {
			t.Error("no list of machines, and no error: all of them would count as deleted")
		}
		for _, m := range got {
			checkUsable(t, m)
		}
	case *Machine:
		if got == nil || got.SystemID == "" || strings.ContainsAny(got.SystemID, "/?#.%{}") {
			t.Errorf("a machine without a usable id: %+v", got)
		}
	case []*Device:
		if got == nil {
			t.Error("no list of devices, and no error: all of them would count as deleted")
		}
		for _, d := range got {
			checkUsable(t, d)
		}
	case *Device:
		if got == nil || got.SystemID == "" || strings.ContainsAny(got.SystemID, "/?#.%{}") {
			t.Errorf("a device without a usable id: %+v", got)
		}
	case VMHost:
		if got.ID < 1 {
			t.Errorf("a VM host without an id: %+v", got)
		}
	case []DNSResource:
		for _, record := range got {
			if record.ID < 1 || slices.Contains(record.Addresses(), "") {
				t.Errorf("a DNS record without an id, or with an empty address: %+v", record)
			}
		}
	case []Ref:
		if slices.ContainsFunc(got, func(r Ref) bool { return r.Name == "" }) {
			t.Errorf("something without a name: %+v", got)
		}
	case []Tag:
		if got == nil || slices.ContainsFunc(got, func(tag Tag) bool { return tag.Name == "" || strings.ContainsAny(tag.Name, "/?#.%{} ") }) {
			t.Errorf("no list of tags, or one without a usable name: %+v", got)
		}
	case []TestResult:
		if got == nil || slices.ContainsFunc(got, func(r TestResult) bool { return r.ID < 1 || r.Set < 1 || r.Name == "" }) {
			t.Errorf("no list of test results, or one without a name or an id: %+v", got)
		}
	case []Script:
		if got == nil || slices.ContainsFunc(got, func(s Script) bool { return s.Name == "" }) {
			t.Errorf("no list of scripts, or one that is no script: %+v", got)
		}
	case []string: // lines of an output
		if len(got) > maxOutputLines || len(strings.Join(got, "")) > maxOutput || strings.ContainsFunc(strings.Join(got, ""), unicode.IsControl) {
			t.Errorf("the lines are not presentable: %q", got)
		}
	case []Image:
		if got == nil || slices.ContainsFunc(got, func(i Image) bool { return i.Name == "" }) {
			t.Errorf("no list of images, or one without a name: %+v", got)
		}
	case ImageDetail:
		if got.ID < 1 || got.Name == "" || got.Sets == nil {
			t.Errorf("no usable image: %+v", got)
		}
		for _, set := range got.Sets {
			for _, file := range set.Files {
				for _, inverted := range []bool{true, false} {
					if there := file.Received(inverted, 1); file.ID() < 0 || file.Size >= 0 && (there < 0 || there > file.Size) {
						t.Errorf("file %d has %d bytes of %d", file.ID(), there, file.Size)
					}
				}
			}
		}
	case string: // system id or version
		if got == "" {
			t.Error("an empty answer")
		}
	}
}

var fuzzKinds = []Kind{NotFound, Conflict, Unauthorized, Forbidden, Invalid, Gone, Busy, Unavailable}

func checkPresentable(t *testing.T, err error, secrets ...string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !slices.Contains(fuzzKinds, e.Kind) {
		t.Fatalf("%T %v, want an *Error of a known kind", err, err)
	}
	if e.RetryAfter < 0 || e.RetryAfter > time.Hour {
		t.Errorf("it is to be tried again after %s", e.RetryAfter)
	}
	texts := []string{e.Message, e.Error(), Message(err)}
	for field, messages := range e.Fields {
		texts = append(append(texts, field), messages...)
	}
	if e.Message == "" {
		t.Error("an error without a message")
	}
	for _, text := range texts {
		if len(text) > maxMessage+100 || !utf8.ValidString(text) ||
			strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }) {
			t.Errorf("not a short line of text: %q", text)
		}
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%q is in %q", secret, text)
			}
		}
	}
}

// FuzzConfig tries any endpoint and key: either both can be used, or the error names the field and not the value.
func FuzzConfig(f *testing.F) {
	f.Fuzz(func(t *testing.T, endpoint, key string, bundle []byte) {
		config := Config{Endpoint: endpoint, APIKey: key, CABundle: bundle}
		err := config.Validate()
		client, clientErr := NewClient(config)
		if (err == nil) != (clientErr == nil) {
			t.Errorf("Validate returned %v, NewClient %v", err, clientErr)
		}
		if err != nil {
			checkConfigError(t, err, key)
			return
		}
		root := client.api.APIURL
		if (root.Scheme != "http" && root.Scheme != "https") || root.Host == "" || !strings.HasSuffix(root.Path, "/api/2.0/") {
			t.Errorf("%q leads to %s", endpoint, root)
		}
		again, err := Config{Endpoint: root.String()}.apiURL()
		if err != nil || again.String() != root.String() {
			t.Errorf("%q leads to %s, and that to %s (%v)", endpoint, root, again, err)
		}
		// What is sent with this key must be a request.
		client.base = &canned{status: 200, body: []byte(`{"version": "3.6.5"}`)}
		if _, err := client.Version(t.Context()); err != nil {
			t.Errorf("a call with the valid key fails: %v", err)
		}
	})
}

func checkConfigError(t *testing.T, err error, key string) {
	t.Helper()
	var wrong *ConfigError
	if !errors.As(err, &wrong) || !slices.Contains([]string{"endpoint", "apiKey", "caBundle"}, wrong.Field) {
		t.Errorf("%T %v, want a ConfigError that names the field", err, err)
	}
	if len(key) > 40 && strings.Contains(err.Error(), key) {
		t.Errorf("the error gives the key away: %v", err)
	}
}

// FuzzHostname makes a DNS label of any name, always the same one, and another one for another cluster.
func FuzzHostname(f *testing.F) {
	f.Fuzz(func(t *testing.T, name, ownerID string) {
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" || !isLabelEnd(name[0]) {
			t.Skip("no name of a Kubernetes object")
		}
		label := Hostname(name, ownerID)
		if len(label) > maxLabel || !isLabelEnd(label[0]) || !isLabelEnd(label[len(label)-1]) || strings.Contains(label, ".") {
			t.Errorf("%q is no DNS label", label)
		}
		if label != Hostname(name, ownerID) || label == Hostname(name, ownerID+"x") {
			t.Errorf("%q does not distinguish clusters", label)
		}
	})
}

func isLabelEnd(c byte) bool { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') }
