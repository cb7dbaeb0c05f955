// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func goodConfig() Config {
	return Config{
		StoragePool: DefaultStoragePool, StorageBackend: "btrfs", StorageSizeGB: 2, NetworkBridge: "br0", Project: DefaultProject,
		ListenAddress: "10.0.2.15:8443",
	}
}

// wrongSettings names the settings of all *SettingErrors in err.
func wrongSettings(err error) []string {
	var settings []string
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range joined.Unwrap() {
			settings = append(settings, wrongSettings(each)...)
		}
		return settings
	}
	var wrong *SettingError
	if errors.As(err, &wrong) {
		settings = append(settings, wrong.Setting)
	}
	return settings
}

func TestValidateNamesEverySettingThatIsWrong(t *testing.T) {
	cases := map[string]struct {
		change func(*Config)
		want   []string
	}{
		"nothing": {func(*Config) {}, nil},
		"everything": {func(c *Config) {
			*c = Config{StoragePool: "a/b", StorageBackend: "ceph", NetworkBridge: "a bridge", Project: "a/b", ListenAddress: "10.0.2.15"}
		}, []string{SettingStoragePool, SettingStorageBackend, SettingStorageSize, SettingNetworkBridge, SettingProject, SettingListen}},
		"no pool":                     {func(c *Config) { c.StoragePool = "" }, []string{SettingStoragePool}},
		"no backend":                  {func(c *Config) { c.StorageBackend = "" }, []string{SettingStorageBackend}},
		"size below 0":                {func(c *Config) { c.StorageSizeGB = -1 }, []string{SettingStorageSize}},
		"no size for dir":             {func(c *Config) { c.StorageBackend, c.StorageSizeGB = "dir", 0 }, nil},
		"no bridge":                   {func(c *Config) { c.NetworkBridge = "" }, []string{SettingNetworkBridge}},
		"bridge of 15 characters":     {func(c *Config) { c.NetworkBridge = "br-456789012345" }, nil},
		"bridge of 16 characters":     {func(c *Config) { c.NetworkBridge = "br-4567890123456" }, []string{SettingNetworkBridge}},
		"bridge with a slash":         {func(c *Config) { c.NetworkBridge = "br/0" }, []string{SettingNetworkBridge}},
		"bridge named as a directory": {func(c *Config) { c.NetworkBridge = ".." }, []string{SettingNetworkBridge}},
		"project with an underscore":  {func(c *Config) { c.Project = "a_b" }, []string{SettingProject}},
		"no project":                  {func(c *Config) { c.Project = "" }, []string{SettingProject}},
		"project default":             {func(c *Config) { c.Project = "default" }, nil},
		"no address":                  {func(c *Config) { c.ListenAddress = "" }, nil},
		"address without a host":      {func(c *Config) { c.ListenAddress = ":8443" }, nil},
		"address of IPv6":             {func(c *Config) { c.ListenAddress = "[fd00::1]:8443" }, nil},
		"address without brackets":    {func(c *Config) { c.ListenAddress = "fd00::1:8443" }, []string{SettingListen}},
		"address with a name":         {func(c *Config) { c.ListenAddress = "node:8443" }, []string{SettingListen}},
		"port 0":                      {func(c *Config) { c.ListenAddress = "10.0.2.15:0" }, []string{SettingListen}},
		"port above 65535":            {func(c *Config) { c.ListenAddress = "10.0.2.15:65536" }, []string{SettingListen}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			config := goodConfig()
			c.change(&config)
			err := config.Validate()
			if diff := cmp.Diff(c.want, wrongSettings(err)); diff != "" {
				t.Errorf("settings that are wrong (-want +got):\n%s\n%v", diff, err)
			}
			if Permanent(err) != (c.want != nil) {
				t.Errorf("Permanent(%v) = %t", err, Permanent(err))
			}
		})
	}
}

func TestInvalidSettingsAreFoundBeforeLXDIsAsked(t *testing.T) {
	n := &Node{socket: t.TempDir() + "/none"}
	report, err := n.Prepare(t.Context(), Config{})
	if want := []string{SettingStoragePool, SettingStorageBackend, SettingStorageSize, SettingNetworkBridge, SettingProject}; !slices.Equal(wrongSettings(err), want) {
		t.Errorf("got %v, want errors about %v", err, want)
	}
	if len(report) != 0 {
		t.Errorf("got checks %v", report)
	}
}

func TestListensWellWhereTheWantedAddressIsServed(t *testing.T) {
	cases := []struct {
		current, wanted string
		want            bool
	}{
		{"10.0.2.15:8443", "10.0.2.15:8443", true},
		{":8443", "10.0.2.15:8443", true},
		{"[::]:8443", "10.0.2.15:8443", true},
		{"[::]:8443", "[fd00::1]:8443", true},
		{"0.0.0.0:8443", "10.0.2.15:8443", true},
		{"0.0.0.0:8443", "[fd00::1]:8443", false},
		{"10.0.2.15", "10.0.2.15:8443", true}, // LXD's default port
		{"10.0.2.15", "10.0.2.15:9443", false},
		{"[fd00::1]", "[fd00::1]:8443", true},
		{"fd00::1", "[fd00::1]:8443", true},
		{"[::ffff:10.0.2.15]:8443", "10.0.2.15:8443", true},
		{"10.0.2.15:8443", "10.0.2.16:8443", false},
		{"10.0.2.15:8443", "10.0.2.15:9443", false},
		{"10.0.2.15:8443", "[::]:8443", false},
		{"0.0.0.0:8443", ":8443", false},
		{"[::]:9443", "10.0.2.15:8443", false},
		{"node.example:8443", "10.0.2.15:8443", false},
		{"", "10.0.2.15:8443", false},
		{"", "", false},
		{"192.0.2.1:1234", "", true},
	}
	for _, c := range cases {
		t.Run(c.current+" for "+c.wanted, func(t *testing.T) {
			p := &pass{Config: Config{ListenAddress: c.wanted}}
			if got := p.listensWell(c.current); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

func TestWithPort(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"10.0.0.1": "10.0.0.1:8443", "10.0.0.1:9": "10.0.0.1:9", "[fd00::1]": "[fd00::1]:8443", "[fd00::1]:9": "[fd00::1]:9", "lxd.example.com": "lxd.example.com:8443",
	} {
		if got := WithPort(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
