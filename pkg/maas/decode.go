// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

// Limits of a response. A hostile MAAS, or another server, must not use up all memory. Long responses are lists: they
// are decoded element by element, and the text of an element is dropped before the next one is read.
const (
	// maxObject bounds a response that is not a list, and each element of a list, in bytes. A machine is about 20 kB.
	maxObject = 1 << 20
	// maxElements bounds the elements of a list, and maxList its bytes.
	maxElements = 50_000
	maxList     = 256 << 20
	// maxKept bounds the memory that a decoded list takes, in bytes: {} takes two bytes in a response, and a hundred in
	// a slice of structs.
	maxKept = 128 << 20
)

// errFormat is for a response that is not the expected JSON.
var errFormat = errors.New("the response can't be read")

// decode reads a response from its body. Nothing of a broken response is kept. Errors are guard.ErrTooLong, those of
// the connection, and errFormat.
func decode(body io.ReadCloser, out any) error {
	target := reflect.ValueOf(out).Elem()
	d := &decoder{body: &guard.Body{ReadCloser: body}, whole: maxObject}
	d.json = json.NewDecoder(d.body)
	read := d.object
	switch target.Kind() {
	case reflect.Slice:
		d.whole, read = maxList, d.list
	case reflect.Map:
		d.whole, read = maxList, d.pairs
	}
	err := read(target)
	if err == nil {
		err = d.end()
	}
	if err == nil {
		return nil
	}
	target.SetZero()
	switch {
	case errors.Is(err, guard.ErrTooLong), d.body.Failed == nil && errors.Is(err, errFormat):
		return err
	case d.body.Failed != nil:
		return d.body.Failed
	}
	return fmt.Errorf("%w: %w", errFormat, err)
}

// decoder reads one response.
type decoder struct {
	json     *json.Decoder
	body     *guard.Body
	whole    int64 // bytes that the whole response may have
	read     int64 // bytes that the body was allowed so far
	elements int
	kept     int64
}

// allow lets the next value have its full limit. The JSON decoder reads ahead; bytes that it has already read count.
func (d *decoder) allow() {
	allowed := min(d.json.InputOffset()+maxObject, d.whole)
	d.body.Remaining += allowed - d.read
	d.read = allowed
}

// object reads a response that is not a list.
func (d *decoder) object(into reflect.Value) error {
	d.allow()
	return d.json.Decode(into.Addr().Interface())
}

// begins reads the first token. null leaves the list as it is, without an error: complete rejects it.
func (d *decoder) begins(with json.Delim) (bool, error) {
	d.allow()
	token, err := d.json.Token()
	if err != nil || token == nil {
		return false, err
	}
	if token != with {
		return false, fmt.Errorf("%w: it does not begin with %s", errFormat, with)
	}
	return true, nil
}

// list reads into a slice.
func (d *decoder) list(into reflect.Value) error {
	if found, err := d.begins('['); !found {
		return err
	}
	into.Set(reflect.MakeSlice(into.Type(), 0, 0))
	for d.more() {
		element := reflect.New(into.Type().Elem())
		if err := d.element(element); err != nil {
			return err
		}
		into.Set(reflect.Append(into, element.Elem()))
	}
	_, err := d.json.Token()
	return err
}

// pairs reads into a map.
func (d *decoder) pairs(into reflect.Value) error {
	if found, err := d.begins('{'); !found {
		return err
	}
	into.Set(reflect.MakeMap(into.Type()))
	for d.more() {
		key, err := d.json.Token()
		if err != nil {
			return err
		}
		element := reflect.New(into.Type().Elem())
		if err := d.element(element); err != nil {
			return err
		}
		d.kept += size(reflect.ValueOf(key))
		into.SetMapIndex(reflect.ValueOf(key), element.Elem())
	}
	_, err := d.json.Token()
	return err
}

func (d *decoder) more() bool {
	d.allow()
	return d.json.More()
}

func (d *decoder) element(into reflect.Value) error {
	if d.elements++; d.elements > maxElements {
		return guard.ErrTooLong
	}
	if err := d.json.Decode(into.Interface()); err != nil {
		return err
	}
	if d.kept += size(into.Elem()); d.kept > maxKept {
		return guard.ErrTooLong
	}
	return nil
}

// end returns an error unless only space follows the value.
func (d *decoder) end() error {
	switch _, err := d.json.Token(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: other data follows it", errFormat)
}

// size returns about how much memory a value takes, with everything that it refers to.
func size(v reflect.Value) int64 {
	return int64(v.Type().Size()) + behind(v)
}

// behind returns the size of what a value refers to.
func behind(v reflect.Value) (n int64) {
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return size(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += behind(v.Field(i))
		}
	case reflect.Slice:
		n = int64(v.Cap()-v.Len()) * int64(v.Type().Elem().Size())
		for i := range v.Len() {
			n += size(v.Index(i))
		}
	case reflect.Map:
		for pairs := v.MapRange(); pairs.Next(); {
			n += size(pairs.Key()) + size(pairs.Value())
		}
	}
	return n
}
