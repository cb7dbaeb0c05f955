// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/time/rate"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

// repeated is a long text that takes no memory: one between two, a number of times.
type repeated struct {
	text  string
	times int
	at    int
}

func (r *repeated) Read(into []byte) (int, error) {
	if r.times == 0 {
		return 0, io.EOF
	}
	n := copy(into, r.text[r.at:])
	if r.at += n; r.at == len(r.text) {
		r.at, r.times = 0, r.times-1
	}
	return n, nil
}

// long is a list, or a map, with many elements that are the same.
func long(begin, element string, times int, end string) func() io.Reader {
	return func() io.Reader {
		return io.MultiReader(strings.NewReader(begin), &repeated{text: element + ",", times: times - 1}, strings.NewReader(element+end))
	}
}

// clientWith returns a client whose MAAS has one response.
func clientWith(t *testing.T, body func() io.Reader) *Client {
	t.Helper()
	client, err := NewClient(Config{Endpoint: "http://maas.example/MAAS", APIKey: testKey})
	if err != nil {
		t.Fatal(err)
	}
	client.limiter = rate.NewLimiter(rate.Inf, 1)
	client.base = roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(body())}, nil
	})
	return client
}

// aMachine is as long as MAAS's are, most of which we don't use.
var aMachine = `{"system_id": "abc123", "hostname": "metal-0123", "fqdn": "metal-0123.maas", "status": 6, "owner": "capi",
	"interface_set": [` + strings.Repeat(`{"id": 1, "name": "eth0", "links": [{"id": 1, "mode": "auto", "subnet": {"id": 1, "cidr": "10.0.0.0/16"}}]},`, 7) + `{"id": 2}],
	"tag_names": ["one", "two"], "blockdevice_set": "` + strings.Repeat("x", 19_000) + `"}`

func TestAListTakesLittleMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		body func() io.Reader
		want error
	}{
		"10,000 machines of 20 kB":   {long("[", aMachine, 10_000, "]"), nil},
		"6 MiB of nothing":           {long("[", "{}", 2<<20, "]"), guard.ErrTooLong},
		"6 MiB of nothing, deeper":   {long("[", `{"system_id": "a", "interface_set": [`+strings.Repeat("{},", 100_000)+`{}]}`, 20, "]"), guard.ErrTooLong},
		"6 MiB of nothing in a list": {long(`[{"system_id": "a", "interface_set": [`, "{}", 2<<20, "]}]"), guard.ErrTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			client := clientWith(t, tc.body)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			machines, err := client.ListMachines(t.Context(), MachineFilter{})
			runtime.ReadMemStats(&after)
			if tc.want != nil && (!errors.Is(err, tc.want) || !errors.Is(err, Unavailable) || machines != nil) {
				t.Errorf("%d machines, %v", len(machines), err)
			}
			if tc.want == nil && (err != nil || len(machines) != 10_000) {
				t.Errorf("%d machines, %v", len(machines), err)
			}
			const most = 256 << 20 // All that was ever allocated; the live memory is less.
			if took := after.TotalAlloc - before.TotalAlloc; took > most {
				t.Errorf("it took %d MiB", took>>20)
			}
		})
	}
}

func TestAnswersHaveBounds(t *testing.T) {
	object := func(size int) string {
		const frame = `{"system_id": "a", "hostname": ""}`
		return strings.Replace(frame, `""`, `"`+strings.Repeat("x", size-len(frame))+`"`, 1)
	}
	list := func(c *Client) error { _, err := c.ListMachines(t.Context(), MachineFilter{}); return err }
	names := func(c *Client) error { _, err := c.InstanceNames(t.Context(), []string{"a"}); return err }
	one := func(c *Client) error { _, err := c.GetMachine(t.Context(), "a"); return err }
	for name, tc := range map[string]struct {
		call func(*Client) error
		body func() io.Reader
		ok   bool
	}{
		"a long element":             {list, long("[", object(maxObject-10), 3, "]"), true},
		"an element too long":        {list, long("[", object(maxObject+10), 1, "]"), false},
		"many elements":              {list, long("[", `{"system_id":"a"}`, maxElements, "]"), true},
		"too many elements":          {list, long("[", `{"system_id":"a"}`, maxElements+1, "]"), false},
		"a list that never ends":     {list, long("[", "", 1<<30, "]"), false},
		"space without end":          {list, func() io.Reader { return io.MultiReader(strings.NewReader("[]"), endless{}) }, false},
		"a name too long":            {names, long("{", `"`+strings.Repeat("x", maxObject)+`": {}`, 1, "}"), false},
		"too many names":             {names, long("{", `"a": {}`, maxElements+1, "}"), false},
		"a long machine":             {one, func() io.Reader { return strings.NewReader(object(maxObject - 10)) }, true},
		"a machine that is too long": {one, func() io.Reader { return strings.NewReader(object(maxObject + 10)) }, false},
		"a machine that never ends":  {one, func() io.Reader { return io.MultiReader(strings.NewReader(`{"x": "`), endless{}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.call(clientWith(t, tc.body))
			if tc.ok && err != nil || !tc.ok && (!errors.Is(err, Unavailable) || NotSent(err)) {
				t.Errorf("the call ends with %v", err)
			}
		})
	}
}

func TestAListIsBoundedAsAWhole(t *testing.T) {
	for whole, want := range map[int64]error{1000: guard.ErrTooLong, 100_000: nil} {
		body := &guard.Body{ReadCloser: io.NopCloser(long("[", `{"system_id": "a"}`, 1000, "]")())}
		d := &decoder{body: body, json: json.NewDecoder(body), whole: whole}
		var machines []*Machine
		if err := d.list(reflect.ValueOf(&machines).Elem()); !errors.Is(err, want) {
			t.Errorf("%d machines of %d bytes: %v, want %v", len(machines), whole, err, want)
		}
	}
}

func TestErrorsAreBounded(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.Copy(w, io.LimitReader(endless{}, 2*maxObject))
	})
	if _, err := client.GetMachine(t.Context(), "abc123"); !errors.Is(err, guard.ErrTooLong) || !errors.Is(err, Unavailable) {
		t.Errorf("the error is %v", err)
	}
}

// What is decoded piece by piece is what encoding/json makes of it as a whole.
func TestDecodeIsAsOfTheWhole(t *testing.T) {
	type pairs = map[string]struct {
		InstanceName string `json:"instance_name"`
	}
	for _, body := range []string{
		"[]", "[ ]", "null", " [ null ] ", "[{}]", "[{},{}]", `[{"system_id": "a"}, {"system_id": "b", "pod": {"id": 1}}]`, "[" + aMachine + "]",
		"{}", `{"system_id": "a"}`, `{"a": {"instance_name": "b"}, "c": null}`, `{"a": {}, "a": {"instance_name": "b"}}`,
		"", " ", "[", "[{}", "[{},", "[,]", "[{},]", "[{}}", "]", "{]", "[] []", "[]x", "nullx", "<html>", "5", `"text"`, `{"a"}`, `{"a":1}`, "[1]", "true",
	} {
		for _, kind := range []any{[]*Machine{}, []Ref{}, Machine{}, pairs{}} {
			want, got := reflect.New(reflect.TypeOf(kind)), reflect.New(reflect.TypeOf(kind))
			wrong := json.Unmarshal([]byte(body), want.Interface())
			err := decode(io.NopCloser(iotest.OneByteReader(strings.NewReader(body))), got.Interface())
			if (err != nil) != (wrong != nil) || (err != nil && !errors.Is(err, errFormat)) {
				t.Errorf("%s into %T: %v, want %v", body, kind, err, wrong)
			}
			if wrong != nil {
				want.Elem().SetZero()
			}
			if diff := cmp.Diff(want.Interface(), got.Interface()); diff != "" {
				t.Errorf("%s into %T (-want +got):\n%s", body, kind, diff)
			}
		}
	}
}

// A response that breaks off is not a wrong one: the connection is to blame.
func TestAConnectionThatBreaksDuringTheResponse(t *testing.T) {
	broken := errors.New("broken")
	for _, body := range []string{"", "[", `[{"system_id": "a"}`, `[{"system_id": "a"},`, "[]"} {
		err := decode(io.NopCloser(io.MultiReader(strings.NewReader(body), iotest.ErrReader(broken))), &[]*Machine{})
		if !errors.Is(err, broken) || errors.Is(err, errFormat) {
			t.Errorf("after %q: %v", body, err)
		}
	}
}

func TestSizeCountsWhatAValueLeadsTo(t *testing.T) {
	type link struct{ text string }
	for name, tc := range map[string]struct {
		value any
		least int64
	}{
		"a string":   {strings.Repeat("a", 1000), 1000},
		"a slice":    {make([]int64, 10, 1000), 8000},
		"a pointer":  {&link{strings.Repeat("a", 1000)}, 1000},
		"an element": {[]link{{strings.Repeat("a", 1000)}}, 1000},
		"a map":      {map[string]string{strings.Repeat("a", 1000): strings.Repeat("b", 1000)}, 2000},
		"anything":   {[]any{map[string]any{"a": strings.Repeat("a", 1000)}}, 1000},
		"a machine":  {Machine{Interfaces: make([]*Interface, 125)}, 1000},
	} {
		if got := size(reflect.ValueOf(tc.value)); got < tc.least || got > tc.least+2000 {
			t.Errorf("%s takes %d, want about %d", name, got, tc.least)
		}
	}
}
