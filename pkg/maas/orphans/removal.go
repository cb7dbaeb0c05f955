// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"fmt"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
)

// Removal returns the commands by which a person removes the orphan, for the command lines of MAAS and LXD. The first
// shows it as long as it is ours. There are none for a machine that is in Doubt, or that somebody locked.
func (f *Finding) Removal() []string {
	m := f.Machine
	if f.Doubt != "" || m.Locked {
		return nil
	}
	id, name, kind := quoted(m.SystemID), quoted(m.Hostname), "machine"
	if m.Device {
		kind = "device"
	}
	mark := "hostname=" + name
	if agent := f.AgentName(); agent != "" && !m.Device {
		mark = "agent_name=" + quoted(agent)
	}
	look := fmt.Sprintf("maas $PROFILE %ss read id=%s %s", kind, id, mark)
	deletion := fmt.Sprintf("maas $PROFILE %s delete %s", kind, id)
	const inLXD = "lxc %s $REMOTE:%s --project=$PROJECT"
	switch {
	case m.Device:
		return []string{look, fmt.Sprintf(inLXD, "config show", name), fmt.Sprintf(inLXD, "delete --force", name), deletion}
	case f.Unhosted():
		return []string{look, "maas $PROFILE machine power-parameters " + id, fmt.Sprintf(inLXD, "delete --force", name),
			deletion}
	case f.Composed():
		return []string{look, deletion, fmt.Sprintf("maas $PROFILE vm-host refresh %d", m.Pod.ID),
			"maas $PROFILE machines read hostname=" + name}
	}
	return []string{look, "maas $PROFILE machine release " + id}
}

// Hints say what a person has to know of the removal.
func (f *Finding) Hints() (hints []string) {
	m := f.Machine
	switch {
	case m.Unreadable:
		return []string{"look at it in MAAS, and release or delete it there"}
	case m.Locked:
		hints = append(hints, "it is locked in MAAS: unlock it there first")
	}
	switch {
	case m.Device:
		return append(hints, "MAAS can't delete a VM that was made from an image: $REMOTE is the LXD of the LXDHost that "+
			"has it, if one has, and $PROJECT that one's project; there, user.capmaas.owner is "+f.OwnerID)
	case f.Unhosted():
		return append(hints, "MAAS can't delete a VM of an LXD that is no VM host: its power parameters name that LXD "+
			"($REMOTE), its project ($PROJECT) and its name there")
	case f.Composed():
		return append(hints, "if MAAS has a machine of this name after the refresh, the VM host still has the VM")
	}
	for _, nic := range m.Interfaces {
		for _, link := range nic.Links {
			if link.Mode == maas.LinkModeStatic && link.IPAddress != "" {
				hints = append(hints, "a release leaves it the static address "+link.IPAddress)
			}
		}
	}
	return append(hints, "a release restores neither network nor storage: if MAAS has the tag "+quarantine.ExcludeTag+"-"+
		m.SystemID+", restore what its comment notes, then delete that tag")
}

// quoted returns a word as a shell takes it: others than we may have written it into MAAS.
func quoted(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
