package host;

import java.util.Map;
import java.util.Set;
import org.elasticsearch.cluster.ClusterState;
import org.elasticsearch.cluster.metadata.DataStream;
import org.elasticsearch.cluster.metadata.Metadata;
import org.elasticsearch.cluster.metadata.MetadataDataStreamsService;
import org.elasticsearch.common.settings.Settings;

/** The data streams of a cluster, which version 9 keeps for each project. */
final class DataStreams {
    static Map<String, DataStream> of(ClusterState state) {
        return state.projectState(Metadata.DEFAULT_PROJECT_ID).metadata().dataStreams();
    }

    static ClusterState without(ClusterState state, String name, Settings settings) {
        return MetadataDataStreamsService.deleteDataStreams(state.projectState(Metadata.DEFAULT_PROJECT_ID), Set.of(of(state).get(name)), settings);
    }
}
