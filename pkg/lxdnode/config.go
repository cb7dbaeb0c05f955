// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"cmp"
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

// The defaults of empty names in a Config.
const (
	DefaultStoragePool = "default"
	DefaultProject     = "maas"
)

// profileName is the profile of the project that MAAS gives to VMs. It uses no other.
const profileName = "maas"

// Config is the wanted setup of a node's LXD.
type Config struct {
	// StoragePool is the name of the pool; empty stands for DefaultStoragePool.
	StoragePool string
	// StorageBackend is the pool's driver: zfs, btrfs, lvm or dir.
	StorageBackend string
	// StorageSizeGB is the size in GB (10^9 bytes) of the loop file under a new pool. The driver dir has no size.
	StorageSizeGB int
	// NetworkBridge is the bridge that VMs are attached to.
	NetworkBridge string
	// CreateBridge makes a bridge managed by LXD if there is none of that name.
	CreateBridge bool
	// Project is the LXD project of MAAS's VMs; empty stands for DefaultProject.
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
	c = c.withDefaults()
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

func (c Config) withDefaults() Config {
	c.StoragePool = cmp.Or(c.StoragePool, DefaultStoragePool)
	c.Project = cmp.Or(c.Project, DefaultProject)
	return c
}

// WithPort returns an address with LXD's port, if it has none.
func WithPort(address string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), defaultPort)
}

// listen is an address that LXD can listen on. The zero Addr stands for all addresses of both families.
type listen struct {
	host netip.Addr
	port uint16
}

func parseListen(address string) (listen, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return listen{}, errors.New("it must be an IP address and a port, for example 192.0.2.10:8443 or [2001:db8::10]:8443")
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return listen{}, errors.New("its port must be a number from 1 to 65535")
	}
	l := listen{port: uint16(number)}
	if host == "" {
		return l, nil
	}
	if l.host, err = netip.ParseAddr(host); err != nil {
		return listen{}, errors.New("its host must be an IP address, or empty for all addresses")
	}
	if l.host == netip.IPv6Unspecified() { // Linux and LXD use it for both families.
		l.host = netip.Addr{}
	}
	l.host = l.host.Unmap()
	return l, nil
}

// serves reports whether a listener on l can also be reached at the other address.
func (l listen) serves(other listen) bool {
	if l.port != other.port {
		return false
	}
	return l.host == other.host || !l.host.IsValid() || l.host == netip.IPv4Unspecified() && other.host.Is4()
}
