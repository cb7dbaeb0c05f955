// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/canonical/lxd/shared/api"
	"github.com/canonical/lxd/shared/version"
)

// LyingLXD says that it is an LXD with room for everything, that it trusts whoever asks, and that it has done what it
// was asked to do. It does nothing.
type LyingLXD struct {
	// Claims are the VMs that it says it has. Default: none.
	Claims func() []api.Instance
	// Images are the aliases of the image that it says it has.
	Images []string

	asked atomic.Int64
}

// Asked is how many requests there were.
func (l *LyingLXD) Asked() int { return int(l.asked.Load()) }

const (
	everything = 1 << 50 // bytes
	allCores   = 1000
)

// ServeHTTP responds.
func (l *LyingLXD) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.asked.Add(1)
	about := strings.Split(strings.Trim(strings.TrimPrefix(r.URL.Path, "/1.0"), "/"), "/")
	done := api.Operation{
		ID: "0b15ec4e-5a5e-4d21-9a34-4c1d37a1b33a", Class: api.OperationClassTask,
		Status: api.Success.String(), StatusCode: api.Success,
	}
	switch told := l.tell(about); {
	case r.Method != http.MethodGet:
		respond(w, http.StatusAccepted, api.ResponseRaw{
			Type: api.AsyncResponse, Status: api.OperationCreated.String(), StatusCode: int(api.OperationCreated),
			Operation: "/1.0/operations/" + done.ID, Metadata: done,
		})
	case about[0] == "operations":
		respond(w, http.StatusOK, success(done))
	case told != nil:
		respond(w, http.StatusOK, success(told))
	default:
		refusal := api.ResponseRaw{Type: api.ErrorResponse, Code: http.StatusNotFound, Error: "Not Found"}
		respond(w, http.StatusNotFound, refusal)
	}
}

// tell returns what there is at a path; nil if there is nothing.
func (l *LyingLXD) tell(about []string) any {
	what, name := about[0], ""
	if len(about) > 1 {
		name = about[1]
	}
	pool := api.StoragePool{Name: "default", Driver: "dir", Status: "Created"}
	bridge := api.Network{Name: "br0", Type: "bridge", Managed: false}
	switch {
	case what == "":
		return api.Server{
			ServerUntrusted: api.ServerUntrusted{
				APIExtensions: version.APIExtensions, APIVersion: "1.0", Auth: "trusted", AuthMethods: []string{"tls"},
			},
			Environment: api.ServerEnvironment{Driver: "lxc | qemu", Server: "lxd", ServerVersion: "5.21.2"},
		}
	case what == "resources":
		return api.Resources{
			CPU: api.ResourcesCPU{Architecture: "x86_64", Total: allCores}, Memory: api.ResourcesMemory{Total: everything},
		}
	case what == "projects" && len(about) > 2:
		state := api.ProjectState{Resources: map[string]api.ProjectStateResource{}}
		for _, of := range []string{"cpu", "memory", "disk"} {
			state.Resources[of] = api.ProjectStateResource{Limit: -1}
		}
		return state
	case what == "projects":
		return api.Project{Name: name}
	case what == "images":
		image := api.Image{Fingerprint: strings.Repeat("ab", 32), Type: string(api.InstanceTypeVM), Architecture: "x86_64"}
		for _, alias := range l.Images {
			image.Aliases = append(image.Aliases, api.ImageAlias{Name: alias})
		}
		return []api.Image{image}
	case what == "networks" && name == "":
		return []api.Network{bridge}
	case what == "networks":
		return bridge
	case what == "storage-pools" && name == "":
		return []api.StoragePool{pool}
	case what == "storage-pools" && slices.Contains(about, "resources"):
		return api.ResourcesStoragePool{Space: api.ResourcesStoragePoolSpace{Total: everything}}
	case what == "storage-pools" && len(about) == 2:
		return pool
	case what == "storage-pools" || what == "instances" && name == "":
		return l.claims(what)
	case what == "instances":
		return l.claimed(name)
	}
	return nil
}

// claims are lists: of VMs, and of volumes.
func (l *LyingLXD) claims(what string) any {
	if what != "instances" || l.Claims == nil {
		return []api.Instance{}
	}
	return l.Claims()
}

func (l *LyingLXD) claimed(name string) any {
	if l.Claims != nil {
		for _, vm := range l.Claims() {
			if vm.Name == name {
				return vm
			}
		}
	}
	return nil
}

func success(metadata any) api.ResponseRaw {
	return api.ResponseRaw{
		Type: api.SyncResponse, Status: api.Success.String(), StatusCode: int(api.Success), Metadata: metadata,
	}
}

func respond(w http.ResponseWriter, code int, answer api.ResponseRaw) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}
