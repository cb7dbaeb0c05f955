// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"regexp"
	"slices"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

var (
	// backends are the LXD storage drivers for hosts.
	backends = []string{
		string(infrav1.StorageBackendZFS), string(infrav1.StorageBackendBtrfs), string(infrav1.StorageBackendLVM),
		string(infrav1.StorageBackendDir),
	}
	gigabytes = regexp.MustCompile(`^[1-9][0-9]{0,8}$`)
)

func (o *object) convertCluster(m, spec mapping) {
	spec.check(children(ClusterFields, ""))
	if _, ok := spec.text("dnsDomain"); !ok && !spec.has("dnsDomain") {
		spec.problem("dnsDomain", "it is missing")
	}
	o.convertEndpoint(m, spec)
	if len(spec.names("failureDomains")) == 0 && !spec.has("failureDomains") {
		spec.note("failureDomains", "it is not given: control planes were not spread, and are now spread over all zones of "+
			"MAAS (its built-in zone only where there is no other). To choose, list zones; one keeps them together")
	}
	if config, ok := spec.child("lxdConfig"); ok {
		config.check(children(ClusterFields, "lxdConfig"))
		o.convertHosts(spec, config)
	}
}

// convertEndpoint: there, the controller overwrote the endpoint unless the annotation marked it as the user's. Here, a
// given endpoint is the user's.
func (o *object) convertEndpoint(m, spec mapping) {
	endpoint, ok := spec.child("controlPlaneEndpoint")
	if !ok {
		return
	}
	endpoint.check(children(ClusterFields, "controlPlaneEndpoint"))
	_, hasHost := endpoint.text("host")
	port, hasPort := endpoint.number("port")
	if port > 65535 {
		endpoint.problem("port", "it has to be from 1 to 65535")
	}
	metadata, _ := m.subject("metadata")
	annotations, _ := metadata.subject("annotations")
	annotated := annotations.has(infrav1.CustomDNSAnnotation)
	switch {
	case len(endpoint.node.Content) == 0:
		spec.remove("controlPlaneEndpoint")
	// It is the user's, or a problem was already reported.
	case annotated || endpoint.has("host") != hasHost || endpoint.has("port") != hasPort:
	default:
		spec.lose("controlPlaneEndpoint", "Spectro Cloud's controller wrote it, over anything that you gave; here the "+
			"cluster gets a name of its own in dnsDomain. To provide the endpoint yourself, put the annotation %s on the "+
			"object (its value does not matter) and convert again; for another port set the Cluster's "+
			"spec.clusterNetwork.apiServerPort", infrav1.CustomDNSAnnotation)
	}
}

// hostDefaults are the defaults of the API server there.
var hostDefaults = map[string]string{"enabled": "false", "storageBackend": "zfs", "storageSize": "50",
	"skipNetworkUpdate": "true"}

// convertHosts converts lxdConfig, which prepares the nodes as VM hosts.
func (o *object) convertHosts(spec, config mapping) {
	if enabled, _ := config.flag("enabled"); !enabled {
		if n := config.get("enabled"); n == nil || n.ShortTag() == boolTag {
			o.dropUnused(spec, config, "lxdConfig", hostDefaults, "enabled is not true, so that it had no effect")
		}
		return
	}
	config.remove("enabled")
	if backend, ok := config.text("storageBackend"); ok && !slices.Contains(backends, backend) {
		config.problem("storageBackend", "it has to be %s", choice(backends))
	}
	size, ok := config.text("storageSize")
	switch {
	case ok && !gigabytes.MatchString(size):
		config.problem("storageSize", "it has to be a number of GB in digits only, in quotes")
	case ok || !config.has("storageSize"):
		config.note("storageSize", "it counts here (default 50 GB); there it was ignored, and the storage pool took 80 %% "+
			"of the machine's disks")
	}
	config.text("zone")
	config.text("resourcePool")
	const there = "there it was ignored, and each VM host was put where its machine was"
	config.note("zone", "it counts here (not given: each VM host goes into the zone of its machine); %s", there)
	config.note("resourcePool", "it counts here (not given: VM hosts go into MAAS's default pool); %s", there)
	o.convertBridge(config)
	value := scalar(boolTag, "true")
	if len(config.node.Content) == 0 {
		spec.rename("lxdConfig", "lxdControlPlaneCluster", value)
	} else {
		spec.set("lxdControlPlaneCluster", value)
	}
	spec.note("lxdControlPlaneCluster", "VM hosts need LXD and a bridge: there, the controller made br0 on each "+
		"machine's boot interface in MAAS, and the initializer installed "+
		"LXD; here both have to be there, by MAAS and by the image or preKubeadmCommands")
}

// convertBridge: here, VMs are always attached to a bridge of the host.
func (o *object) convertBridge(config mapping) {
	kind, _ := config.text("nicType")
	bridge, hasBridge := config.text("networkBridge")
	parent, hasParent := config.text("nicParent")
	switch kind {
	case "macvlan":
		config.lose("nicType", "VMs are attached to a bridge: set networkBridge to one that each host has (default br0)")
		config.lose("nicParent", "it is for macvlan")
	case "", "bridge":
		if !config.has("nicType") || kind == "bridge" {
			config.remove("nicType")
		}
		if hasParent && hasBridge && parent != bridge {
			config.problem("nicParent", "nicParent and networkBridge differ (%s, %s): keep the one that names the bridge that "+
				"VMs are attached to", parent, bridge)
		} else if hasParent && !hasBridge {
			config.note("nicParent", "it becomes networkBridge, so that it has to be a bridge, and not another interface")
			config.rename("nicParent", "networkBridge", scalar(textTag, parent))
		}
		if hasBridge && parent == bridge {
			config.remove("nicParent")
		}
	default:
		config.problem("nicType", "it is bridge or macvlan")
	}
	if skip, ok := config.flag("skipNetworkUpdate"); ok && skip {
		config.remove("skipNetworkUpdate") // Networks of the host are never changed here.
	} else if ok {
		config.lose("skipNetworkUpdate", "no network is made or changed on a host: have MAAS make the bridge")
	}
}

// dropUnused leaves out a part that had no effect. Only values of the user are a loss: the API server filled in
// defaults.
func (o *object) dropUnused(in, part mapping, key string, defaults map[string]string, why string) {
	for i := 0; i+1 < len(part.node.Content); i += 2 {
		name, value := part.node.Content[i].Value, part.node.Content[i+1]
		if fallback, ok := defaults[name]; !ok || value.Value != fallback {
			part.report(Loss, name, "left out: %s", why)
		}
	}
	in.remove(key)
}
