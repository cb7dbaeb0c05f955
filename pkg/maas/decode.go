// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
)

// What is taken of an answer. A hostile MAAS, or something that is none, must not take all memory, and lists are the long answers: they
// are decoded one element after the other, and what was read of an element is gone when the next one comes.
const (
	// maxObject bounds what is no list, and each element of a list, in bytes. A machine is about 20 kB.
	maxObject = 1 << 20
	// maxElements bounds how long a list is, and maxList how many bytes it has.
	maxElements = 50_000
	maxList     = 256 << 20
	// maxKept bounds what is kept of a list, in bytes of memory: {} takes two bytes in an answer, and a hundred in a slice of structs.
	maxKept = 128 << 20
)

// errTooLong is for an answer that is longer than it may be.
var errTooLong = errors.New("the answer is longer than MAAS's answers are")

// errFormat is for an answer that is no JSON of what was asked for.
var errFormat = errors.New("the answer can't be read")

// boundedBody ends with errTooLong where the answer is longer than it may be.
type boundedBody struct {
	io.ReadCloser
	left   int64
	failed error // why no more could be read
}

// Read reads no more than what is left of the bound.
func (b *boundedBody) Read(into []byte) (int, error) {
	if b.left <= 0 {
		b.failed = errTooLong
		return 0, errTooLong
	}
	n, err := b.ReadCloser.Read(into[:min(int64(len(into)), b.left)])
	b.left -= int64(n)
	if err != nil && err != io.EOF {
		b.failed = err
	}
	return n, err
}

// decode reads an answer from its body. Of an answer that is broken nothing is kept. Errors are errTooLong, those of the connection, and
// errFormat.
func decode(body io.ReadCloser, out any) error {
	target := reflect.ValueOf(out).Elem()
	d := &decoder{body: &boundedBody{ReadCloser: body}, whole: maxObject}
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
	case errors.Is(err, errTooLong), d.body.failed == nil && errors.Is(err, errFormat):
		return err
	case d.body.failed != nil:
		return d.body.failed
	}
	return fmt.Errorf("%w: %w", errFormat, err)
}

// decoder reads one answer.
type decoder struct {
	json     *json.Decoder
	body     *boundedBody
	whole    int64 // how long the answer may be
	read     int64 // how much of it the body was allowed
	elements int
	kept     int64
}

// allow lets the next value be as long as one may be. The JSON decoder reads ahead; what it has read already counts.
func (d *decoder) allow() {
	allowed := min(d.json.InputOffset()+maxObject, d.whole)
	d.body.left += allowed - d.read
	d.read = allowed
}

// object reads an answer that is no list.
func (d *decoder) object(into reflect.Value) error {
	d.allow()
	return d.json.Decode(into.Addr().Interface())
}

// begins reads the first token. null leaves the list as it is, without an error: it is for complete.
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
		return errTooLong
	}
	if err := d.json.Decode(into.Interface()); err != nil {
		return err
	}
	if d.kept += size(into.Elem()); d.kept > maxKept {
		return errTooLong
	}
	return nil
}

// end wants nothing but space after the answer.
func (d *decoder) end() error {
	switch _, err := d.json.Token(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: something follows it", errFormat)
}

// size is about how much memory a value takes, with all that it leads to.
func size(v reflect.Value) int64 {
	return int64(v.Type().Size()) + behind(v)
}

// behind is what a value leads to.
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
