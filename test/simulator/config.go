// SPDX-License-Identifier: Apache-2.0

package simulator

// defaultConfig returns the settings of a new MAAS, as far as anything here reads them or callers ask.
func defaultConfig() map[string]any {
	return map[string]any{
		"maas_name": "maas", "default_osystem": "ubuntu", "default_distro_series": "jammy",
		"commissioning_distro_series": "jammy", "default_min_hwe_kernel": "", "node_timeout": 30, "max_node_testing_results": 10, "default_dns_ttl": 30,
		"enable_disk_erasing_on_release": false, "disk_erase_with_secure_erase": true, "disk_erase_with_quick_erase": false,
		"default_storage_layout": "flat", "upstream_dns": nil, "ntp_servers": "ntp.ubuntu.com", "enable_http_proxy": true,
		"http_proxy": "", "kernel_opts": nil, "completed_intro": true, "dnssec_validation": "auto",
	}
}

func (rq *request) getConfig() (any, error) {
	name := rq.query.get("name")
	if name == "" {
		return nil, badRequest("No provided name!")
	}
	value, ok := rq.db.config[name]
	if !ok {
		return nil, invalidField("name", "%s is not a valid config setting.", name)
	}
	return value, nil
}

func (s *Simulator) configText(name string) string {
	text, _ := s.db.config[name].(string)
	return text
}

func (s *Simulator) configBool(name string) bool {
	on, _ := s.db.config[name].(bool)
	return on
}
