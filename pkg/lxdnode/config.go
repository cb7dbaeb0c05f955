// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Names of the settings, as errors and remedies use them: environment variables of the initializer. Command line
// flags have the same names in lower case with dashes.
const (
	SettingStoragePool    = "STORAGE_POOL"
	SettingStorageBackend = "STORAGE_BACKEND"
	SettingStorageSize    = "STORAGE_SIZE"
	SettingNetworkBridge  = "NETWORK_BRIDGE"
	SettingCreateBridge   = "CREATE_BRIDGE"
	SettingProject        = "LXD_PROJECT"
	SettingListen         = "LXD_LISTEN"
)

// Names that AddFlags, and flags for the project, have as defaults.
const (
	DefaultStoragePool = "default"
	DefaultProject     = "maas"
)

// profileName is the profile of the project that MAAS gives to VMs. It uses no other.
const profileName = "maas"

// Config is the wanted setup of a node's LXD.
type Config struct {
	// StoragePool is the name of the pool.
	StoragePool string
	// StorageBackend is the pool's driver: zfs, btrfs, lvm or dir.
	StorageBackend string
	// StorageSizeGB is the size in GB (10^9 bytes) of the loop file under a new pool. The driver dir has no size.
	StorageSizeGB int
	// NetworkBridge is the bridge that VMs are attached to.
	NetworkBridge string
	// CreateBridge makes a bridge managed by LXD if there is none of that name.
	CreateBridge bool
	// Project is the LXD project of MAAS's VMs.
	Project string
	// ListenAddress is where MAAS reaches LXD (core.https_address): an IP address, or none for all of them, and a port.
	// Empty: any address that LXD has will do; without one it gets anyListen.
	ListenAddress string
}

// AddFlags adds the flags of pool and bridge, with their defaults.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.StorageBackend, "storage-backend", "zfs", "Driver of the storage pool: zfs, btrfs, lvm or dir.")
	fs.IntVar(&c.StorageSizeGB, "storage-size", 50, "Size of the storage pool in GB. A pool in a directory has none.")
	fs.StringVar(&c.StoragePool, "storage-pool", DefaultStoragePool, "Name of the storage pool.")
	fs.StringVar(&c.NetworkBridge, "network-bridge", "br0", "Bridge that the VMs are attached to.")
	fs.BoolVar(&c.CreateBridge, "create-bridge", false,
		"The bridge is to be one that LXD makes and manages, where there is none.")
}

// SettingError is a setting that can't be used.
type SettingError struct {
	Setting, Value, Problem string
}

// Error names the setting, its value and the rule.
func (e *SettingError) Error() string { return fmt.Sprintf("%s=%q: %s", e.Setting, e.Value, e.Problem) }

func backends() []string { return []string{"zfs", "btrfs", "lvm", "dir"} }

// Names that LXD accepts: for storage pools, for projects (without underscores), and for interfaces, whose length Linux
// limits.
var (
	objectName    = regexp.MustCompile(`^[a-zA-Z0-9][-_.a-zA-Z0-9]*$`)
	projectName   = regexp.MustCompile(`^[a-zA-Z0-9][-.a-zA-Z0-9]*$`)
	interfaceName = regexp.MustCompile(`^[-_.a-zA-Z0-9]{2,15}$`)
)

// Validate checks the form of all settings without calling LXD. The error holds all problems, each as a *SettingError.
func (c Config) Validate() error {
	var errs []error
	wrong := func(setting, value, problem string) {
		errs = append(errs, &SettingError{setting, value, problem})
	}
	if !objectName.MatchString(c.StoragePool) {
		wrong(SettingStoragePool, c.StoragePool, "a pool's name has letters, digits, dots, dashes and underscores")
	}
	if !slices.Contains(backends(), c.StorageBackend) {
		wrong(SettingStorageBackend, c.StorageBackend, "it must be one of "+strings.Join(backends(), ", "))
	}
	if c.StorageSizeGB <= 0 && c.StorageBackend != "dir" {
		wrong(SettingStorageSize, strconv.Itoa(c.StorageSizeGB), "it must be a number of GB above 0")
	}
	if !interfaceName.MatchString(c.NetworkBridge) || c.NetworkBridge == ".." {
		wrong(SettingNetworkBridge, c.NetworkBridge,
			"a bridge's name has 2 to 15 letters, digits, dots, dashes and underscores")
	}
	if !projectName.MatchString(c.Project) {
		wrong(SettingProject, c.Project, "a project's name has letters, digits, dots and dashes")
	}
	if c.ListenAddress != "" {
		if _, err := parseListen(c.ListenAddress); err != nil {
			wrong(SettingListen, c.ListenAddress, err.Error())
		}
	}
	return errors.Join(errs...)
}

// WithPort returns an address with LXD's port, if it has none.
func WithPort(address string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), defaultPort)
}

// parseListen parses an address that LXD can listen on. Its host is the zero Addr for all addresses of both families.
func parseListen(address string) (none netip.AddrPort, _ error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return none, errors.New("it must be an IP address and a port, for example 192.0.2.10:8443 or [2001:db8::10]:8443")
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return none, errors.New("its port must be a number from 1 to 65535")
	}
	var ip netip.Addr
	if host != "" {
		if ip, err = netip.ParseAddr(host); err != nil {
			return none, errors.New("its host must be an IP address, or empty for all addresses")
		}
	}
	if ip == netip.IPv6Unspecified() { // Linux and LXD use it for both families.
		ip = netip.Addr{}
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(number)), nil
}

// serves reports whether a listener can also be reached at another address.
func serves(listener, other netip.AddrPort) bool {
	if listener.Port() != other.Port() {
		return false
	}
	on := listener.Addr()
	return on == other.Addr() || !on.IsValid() || on == netip.IPv4Unspecified() && other.Addr().Is4()
}
