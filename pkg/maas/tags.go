// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"net/http"
	"net/url"
)

// Tag is a tag of machines. Everybody may read tags; to change them, or which machines have them, is for
// administrators.
type Tag struct {
	// Name is of letters, digits, - and _.
	Name string `json:"name"`
	// Comment is a text for people.
	Comment string `json:"comment"`
}

// ListTags returns the tags (GET tags/).
func (c *Client) ListTags(ctx context.Context) ([]Tag, error) { return askAll[Tag](ctx, c, "tags/") }

// CreateTag creates a tag (POST tags/). Invalid with the field name: there is one of this name, or MAAS takes no such
// name. Forbidden: the key's user may not change tags.
func (c *Client) CreateTag(ctx context.Context, permit Permit, tag Tag) error {
	form := url.Values{"name": {tag.Name}, "comment": {tag.Comment}}
	return c.do(ctx, on("tags/").post(permit, "", form), &Tag{})
}

// CommentTag changes the comment of a tag (PUT tags/{name}/). Forbidden: the key's user may not change tags.
func (c *Client) CommentTag(ctx context.Context, permit Permit, tag Tag) error {
	return c.do(ctx, on("tags/{name}/", tag.Name).put(permit, url.Values{"comment": {tag.Comment}}), &Tag{})
}

// DeleteTag deletes a tag; no machine has it from then on (DELETE tags/{name}/). Forbidden: the key's user may not
// change tags.
func (c *Client) DeleteTag(ctx context.Context, permit Permit, name string) error {
	return c.do(ctx, on("tags/{name}/", name).remove(permit), nil)
}

// TaggedMachines returns the machines that have a tag, as far as MAAS shows them to the key's user (GET tags/{name}/
// op=machines). NotFound: there is no such tag.
func (c *Client) TaggedMachines(ctx context.Context, name string) ([]*Machine, error) {
	return ask[[]*Machine](ctx, c, on("tags/{name}/", name).query("machines", nil).asList())
}

// tagged is how many of the named machines MAAS knows.
type tagged struct {
	Added   *int `json:"added"`
	Removed *int `json:"removed"`
}

// TagMachine puts a tag on a machine, whoever has it (POST tags/{name}/ op=update_nodes). It is no error if the machine
// has the tag already. NotFound: there is no such tag, or no such machine. Forbidden: the key's user may not change
// tags.
func (c *Client) TagMachine(ctx context.Context, permit Permit, name, systemID string) error {
	put := on("tags/{name}/", name).post(permit, "update_nodes", url.Values{"add": {systemID}})
	done, err := ask[tagged](ctx, c, put)
	if err != nil || *done.Added > 0 {
		return err
	}
	missing := put.fail(http.StatusOK, "MAAS has no machine "+systemID, nil)
	missing.Kind = NotFound
	return missing
}

// UntagMachines takes a tag off machines, whoever has them (POST tags/{name}/ op=update_nodes). It is no error if a
// machine does not have it. NotFound: there is no such tag. Forbidden: the key's user may not change tags.
func (c *Client) UntagMachines(ctx context.Context, permit Permit, name string, systemIDs []string) error {
	form := url.Values{"remove": systemIDs}
	return c.do(ctx, on("tags/{name}/", name).post(permit, "update_nodes", form), &tagged{})
}
